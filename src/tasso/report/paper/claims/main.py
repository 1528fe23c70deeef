"""Claims on the main tables: eight methods, eight sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from tasso.experiments.plans import MAIN, SEQUENCES, TASSO, PlanRow
from tasso.report.collect import Setting
from tasso.report.paper.evidence import Evidence, Values, direction, pair
from tasso.report.paper.paired import CLOSE, FAILS, HOLDS, UNTESTED, Outcome, Paired, threshold
from tasso.report.paper.published import Published, PublishedTable
from tasso.report.paper.verdict import WORDS, Finding, Verdict, difference, missing_note, untested, with_sign
from tasso.report.significance import LEVEL, sign_flip_p
from tasso.report.tables import SETTING_NAMES, count_of, fixed


def best_on_sequences(evidence: Evidence, published: Published, *, setting: Setting, metric: str) -> Verdict:
    """TASSO is the best of the methods that the paper compares in this setting, on as many sequences as it says.

    A sequence is won if TASSO is better than every other method there (means over the seeds that both have). Holds if
    as many are won as in the paper's own table, TASSO's mean over the sequences is best, and the sign-flip test over
    its leads over the best other method of each sequence reaches 5 %. Does not hold if fewer are won, even when those
    lost by less than two standard errors of the seeds are counted as won. Too close to tell in between. While runs are
    missing the claim is untested, unless what is there refutes it. A row that shows replay is left out, and told.
    """
    table = published.table(f"main-{setting}")
    compared = [row for row in MAIN if row != TASSO and table.find(row.method, metric)]  # by the paper
    rivals = [row for row in compared if not evidence.shows_replay(row.label)]
    needed = _printed_wins(table, metric)
    ours = evidence.values("main", "TASSO", setting, metric)
    theirs = {row.label: evidence.values("main", row.label, setting, metric) for row in rivals}
    leads = {sequence: _leads(ours, theirs, sequence, metric) for sequence in SEQUENCES}
    least = {sequence: min(found, key=lambda item: item[1]) for sequence, found in leads.items() if found}
    names, total = SETTING_NAMES[setting], len(SEQUENCES)
    superlative = "highest" if metric == "accuracy" else "lowest"
    claim = f"TASSO has the {superlative} {WORDS[metric]} on {needed} of {total} sequences ({names})"
    key = f"best-{metric}-{setting}".replace("_", "-")
    if not least:
        return untested(key, claim, evidence, "main")
    complete = all(len(leads[sequence]) == len(rivals) for sequence in SEQUENCES)
    seeds = len({seed for _, seed in ours})
    spread = evidence.spread(setting, metric)
    margins = {sequence: lead for sequence, (_, lead) in least.items()}
    won = sum(lead > 0 for lead in margins.values())
    # A lost sequence might be won with other seeds if it is lost by less than these make.
    noise = 0.0 if spread is None else threshold(seeds, spread)
    open_to_chance = sum(-noise <= lead <= 0 for lead in margins.values()) + total - len(margins)
    paired = Paired(tuple(margins.values()), "sequence", seeds)
    mean_leads = _mean_leads(leads)
    runner_up, mean_lead = min(mean_leads.items(), key=lambda item: item[1])
    if won + open_to_chance < needed:
        outcome: Outcome = FAILS
    elif not complete:
        outcome = UNTESTED
    elif won >= needed and mean_lead > 0 and sign_flip_p(paired.leads) <= LEVEL:
        outcome = HOLDS
    else:
        outcome = CLOSE
    printed = [direction(metric) * float(difference(table, metric, "Mean", "tasso", row.method)) for row in rivals]
    findings = (
        Finding("sequences won", won, len(margins), "sequence", paper=needed, signed=False, digits=0),
        Finding(
            "lead over the best other method of each sequence, mean", paired.mean, len(margins), "sequence",
            won, paired.p,
        ),
        Finding(f"lead over the next best mean ({runner_up})", mean_lead, len(margins), "sequence", paper=min(printed)),
    )  # fmt: skip
    notes = [", ".join(f"{name} {with_sign(lead)} ({rival})" for name, (rival, lead) in least.items()) + "."]
    within = sum(abs(lead) < noise for lead in margins.values())
    if within:
        notes.append(f"Within two standard errors of the seeds ({fixed(noise, 2)}): {within} of {len(margins)} leads.")
    notes += _left_out(evidence, [row for row in MAIN if row not in (TASSO, *rivals)], setting, metric, ours)
    if not complete:
        notes.append(missing_note(evidence, "main"))
    weak = ["one seed"] * (seeds == 1) + ["spread over seeds unknown"] * (spread is None)
    few = "" if outcome == UNTESTED else ", ".join(weak)
    return Verdict(key, claim, outcome, findings, seeds, " ".join(notes), few)


def _printed_wins(table: PublishedTable, metric: str) -> int:
    """On how many sequences TASSO is best in the paper's table."""
    rows = [row for row in table.rows if row.metric == metric]
    best = max if metric == "accuracy" else min
    columns = [{row.key: float(row.values[index]) for row in rows} for index in range(len(SEQUENCES))]
    return sum(column["tasso"] == best(column.values()) for column in columns)


def _leads(ours: Values, theirs: Mapping[str, Values], sequence: str, metric: str) -> list[tuple[str, float]]:
    """TASSO's leads over each method on one sequence."""
    found = []
    for label, values in theirs.items():
        here = {key: value for key, value in values.items() if key[0] == sequence}
        if (paired := pair(ours, here, metric)) is not None:
            found.append((label, paired.mean))
    return found


def _mean_leads(leads: Mapping[str, Sequence[tuple[str, float]]]) -> dict[str, float]:
    """TASSO's lead over each method, mean over the sequences."""
    by_method: dict[str, list[float]] = {}
    for found in leads.values():
        for label, lead in found:
            by_method.setdefault(label, []).append(lead)
    return {label: fmean(values) for label, values in by_method.items()}


def _left_out(evidence: Evidence, rows: Sequence[PlanRow], setting: Setting, metric: str, ours: Values) -> list[str]:
    """Methods that we ran and that are not compared here must not go unsaid."""
    notes = []
    for row in rows:
        paired = pair(ours, evidence.values("main", row.label, setting, metric), metric)
        if paired is not None:
            behind = sum(lead < 0 for lead in paired.leads)
            by_paper = f"which the paper leaves out in {SETTING_NAMES[setting]}"
            why = "whose row shows replay" if evidence.shows_replay(row.label) else by_paper
            notes.append(
                f"{row.label}, {why}, is better than TASSO in {behind} of "
                f"{count_of(len(paired.leads), paired.unit)} (TASSO's lead: {with_sign(paired.mean)})."
            )
    return notes
