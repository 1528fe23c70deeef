"""Claims on the ablations."""

from __future__ import annotations

from statistics import fmean

from tasso.experiments.plans import PLANS
from tasso.report.collect import Setting
from tasso.report.paper.evidence import CORE, Evidence, direction, pair
from tasso.report.paper.paired import CLOSE, FAILS, HOLDS, Outcome, threshold
from tasso.report.paper.published import Published
from tasso.report.paper.verdict import WORDS, Finding, Part, Verdict, compare, decide, difference, or_untested, untested
from tasso.report.tables import SETTING_NAMES, fixed

SIGNS = {"rank": "r", "alpha": "α", "beta": "β"}


def geodesic_ahead_of_l2(evidence: Evidence, published: Published, *, setting: Setting) -> Verdict:
    """Geodesic distillation against L2, without and with subspace learning, in all three metrics.

    Holds only if it is ahead in all six comparisons; does not hold if it is behind in one.
    """
    table = published.table(f"components-{setting}")
    parts = []
    for subspace, keys in (("no subspace", ("geo", "l2")), ("subspace", ("tasso", "sub-l2"))):
        rows = (f"geodesic, {subspace}", f"L2, {subspace}")
        parts += [compare(evidence, table, "components", *rows, setting, metric, keys=keys) for metric in CORE]
    claim = f"Geodesic distillation is ahead of L2, with and without subspace learning ({SETTING_NAMES[setting]})"
    return or_untested(decide(f"geodesic-{setting}", claim, parts), evidence, "components")


def parts_are_complementary(evidence: Evidence, published: Published, *, setting: Setting) -> Verdict:
    """Each of the two parts adds accuracy to the other, and each helps more where the other is.

    Three comparisons of accuracy: both parts against geodesic distillation alone; both against subspace learning
    alone; and the gain of geodesic over L2 with subspace learning against that gain without it. Holds if all three are
    ahead; does not hold if one is behind.
    """
    table = published.table(f"components-{setting}")
    rows = {
        name: evidence.values("components", name, setting, "accuracy")
        for name in ("geodesic, subspace", "L2, subspace", "geodesic, no subspace", "L2, no subspace")
    }
    shared = [key for key in next(iter(rows.values())) if all(key in values for values in rows.values())]
    with_it = {key: rows["geodesic, subspace"][key] - rows["L2, subspace"][key] for key in shared}
    without = {key: rows["geodesic, no subspace"][key] - rows["L2, no subspace"][key] for key in shared}
    spread = evidence.spread(setting, "accuracy")
    gains = [difference(table, None, "accuracy", *keys) for keys in (("tasso", "sub-l2"), ("geo", "l2"))]
    name = SETTING_NAMES[setting]
    parts = [
        compare(
            evidence, table, "components", "geodesic, subspace", row, setting, "accuracy", keys=("tasso", key),
            words=f"both parts against {words} alone",
        )
        for row, key, words in (
            ("geodesic, no subspace", "geo", "geodesic distillation"),
            ("no KD, subspace", "sub", "subspace learning"),
        )
    ]  # fmt: skip
    parts.append(
        Part(
            f"{name} accuracy, gain of geodesic over L2 with subspace learning less that without",
            pair(with_it, without, "accuracy"),
            None if spread is None else spread * 2**0.5,  # a difference of differences: four runs, not two
            float(gains[0] - gains[1]),
        )
    )
    claim = f"Subspace learning and geodesic distillation are complementary ({name})"
    return or_untested(decide(f"complementary-{setting}", claim, parts), evidence, "components")


def divided_distillation(evidence: Evidence, published: Published) -> Verdict:
    """Distillation in the two parts against distillation of the undivided embedding (MTIL, the paper's setting).

    Holds if forgetting and zero-shot degradation are ahead and accuracy, which the paper finds almost the same, is
    not behind. Does not hold if one of the three is behind.
    """
    tables = published.table("components-mtil"), published.table("undivided")
    parts = []
    for metric in CORE:
        part = compare(
            evidence, None, "whole-kd", "TASSO", "KD on the undivided embedding", "mtil", metric,
            words="divided against undivided", ahead=metric != "accuracy",
        )  # fmt: skip
        ours, theirs = tables[0].number_of("tasso", metric), tables[1].number_of("undivided", metric)
        assert ours is not None
        assert theirs is not None
        parts.append(Part(part.what, part.paired, part.spread, direction(metric) * (ours - theirs), part.ahead))
    claim = "Distilling the two parts is ahead of distilling the whole embedding, at no cost in accuracy (MTIL)"
    return or_untested(decide("divided", claim, parts), evidence, "whole-kd")


def geodesic_in_both_parts(evidence: Evidence, published: Published) -> Verdict:
    """Geodesic distances inside and outside have the least forgetting and degradation of all nine pairs (MTIL).

    For both metrics, against the best of the other eight by its mean: holds if both are ahead, does not hold if one is
    behind. Choosing the best of eight afterwards makes this harder for the claim.
    """
    rows = [row.label for row in PLANS["distances"].rows]
    ours = next(row.label for row in PLANS["distances"].rows if row.ours)
    parts = []
    for metric in CORE[1:]:
        others = {row: evidence.values("distances", row, "mtil", metric) for row in rows if row != ours}
        grid = published.table(f"kd-grid-{metric}")
        printed = [grid.number_of(a.key, b) for a in grid.rows for b in grid.columns if (a.key, b) != ("geodesic",) * 2]
        # Less is better in both metrics, so this is the lead.
        paper = min(value for value in printed if value is not None) - (grid.number_of("geodesic", "geodesic") or 0)
        here = evidence.values("distances", ours, "mtil", metric)
        pairs = {row: pair(here, values, metric) for row, values in others.items()}
        leads = {row: paired for row, paired in pairs.items() if paired is not None}
        what = f"MTIL {WORDS[metric]}, geodesic in both parts"
        if len(leads) < len(others):
            parts.append(Part(what, None, None))
            continue
        rival = min(leads, key=lambda row: leads[row].mean)
        spread = evidence.spread("mtil", metric)
        parts.append(Part(f"{what} against the best other pair ({rival})", leads[rival], spread, paper))
    claim = "Geodesic distances in both parts give the least forgetting and degradation of all nine pairs (MTIL)"
    return or_untested(decide("distances", claim, parts), evidence, "distances")


def joint_training(evidence: Evidence, published: Published) -> Verdict:
    """Training projector and encoder together has the highest accuracy of the four strategies (MTIL).

    Holds if it is ahead of each of the other three, does not hold if it is behind one.
    """
    table = published.table("optimisation")
    parts = [
        compare(evidence, table, "optimisation", "TASSO", row.name, "mtil", "accuracy", keys=("tasso", row.key))
        for row in table.rows
        if row.key != "tasso"
    ]
    claim = "Joint training has the highest accuracy of the four ways to train projector and encoder (MTIL)"
    return or_untested(decide("joint", claim, parts), evidence, "optimisation")


def robust_to(evidence: Evidence, published: Published, *, setting: Setting, plan: str) -> Verdict:
    """Accuracy hardly changes with r, α or β.

    The paper calls its own range (highest less lowest mean accuracy over its three values) stable, so that range is the
    yardstick. Holds if our range is no larger, or if it is within two standard errors of a difference over seeds. Does
    not hold if it is larger than both together; without a known spread over seeds that is too close to tell. Too close
    to tell in between. The other two metrics are shown, not judged.
    """
    table = published.table(f"{plan}-{setting}")
    rows = PLANS[plan].rows
    name, sign = SETTING_NAMES[setting], SIGNS[plan]
    claim = f"Accuracy hardly depends on {sign} ({name})"
    key = f"robust-{plan}-{setting}"
    values = [evidence.values(plan, row.label, setting, "accuracy") for row in rows]
    shared = [pair_key for pair_key in values[0] if all(pair_key in other for other in values)]
    if not shared:
        return untested(key, claim, evidence, plan)
    settings = ", ".join(row.label_at(evidence.setup).split(" of ")[0].removeprefix(f"{sign} = ") for row in rows)
    findings = []
    for metric in CORE:
        found_here = [evidence.values(plan, row.label, setting, metric) for row in rows]
        if not all(pair_key in row for row in found_here for pair_key in shared):
            continue  # runs of a single task have nothing to forget
        means = [fmean(row[pair_key] for pair_key in shared) for row in found_here]
        printed = [float(row.values[table.columns.index(metric)]) for row in table.rows]
        findings.append(
            Finding(
                f"range of {WORDS[metric]} over {sign} = {settings}", max(means) - min(means), len(shared), "seed",
                paper=max(printed) - min(printed), signed=False,
            )
        )  # fmt: skip
    seeds = len({seed for _, seed in shared})
    spread = evidence.spread(setting, "accuracy")
    noise = 0.0 if spread is None else threshold(seeds, spread)
    found, allowed = findings[0].value, findings[0].paper or 0.0
    if found <= max(allowed, noise):
        outcome: Outcome = HOLDS
    elif found <= allowed + noise or spread is None:
        outcome = CLOSE
    else:
        outcome = FAILS
    note = "" if spread is None else f"Two standard errors of a difference over seeds: {fixed(noise, 2)}."
    weak = ["one seed"] * (seeds == 1) + ["spread over seeds unknown"] * (spread is None)
    return Verdict(key, claim, outcome, tuple(findings), seeds, note, ", ".join(weak))
