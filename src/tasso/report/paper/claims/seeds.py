"""Claims on seeds."""

from __future__ import annotations

from statistics import pstdev

from tasso.report.paper.evidence import CORE, Evidence, direction, pair
from tasso.report.paper.paired import ENOUGH, FAILS, HOLDS, Outcome
from tasso.report.paper.published import Published
from tasso.report.paper.verdict import WORDS, Finding, Part, Verdict, decide, or_untested, untested

LARGER = 2.4  # With seven seeds each, two samples of one distribution differ less than this in 19 of 20 cases (F 6, 6).


def seed_spread(evidence: Evidence, published: Published) -> Verdict:
    """The standard deviation over seeds is as small as the paper's, in all three metrics (MTIL, S1).

    The paper's are population deviations (n, not n - 1), and so are these. Holds if none is more than 2.4 times the
    paper's: what chance makes of two samples of seven seeds. Does not hold otherwise. Needs six seeds.
    """
    claim = "Results hardly depend on the seed: standard deviations as the paper's (MTIL, S1)"
    table, findings, seeds = published.table("seeds"), [], 0
    for metric in CORE:
        values = evidence.values("seeds", "TASSO", "mtil", metric)
        seeds = len(values)
        if seeds < ENOUGH:
            return untested("seed-spread", claim, evidence, "seeds")
        found, printed = pstdev(values.values()), table.number_of("std", metric)
        within: Outcome = HOLDS if printed is not None and found <= LARGER * printed else FAILS
        findings.append(
            Finding(f"standard deviation of {WORDS[metric]}", found, seeds, "seed", paper=printed, signed=False,
                    outcome=within)
        )  # fmt: skip
    outcome = FAILS if FAILS in [finding.outcome for finding in findings] else HOLDS
    return Verdict("seed-spread", claim, outcome, tuple(findings), seeds)


def ahead_with_every_seed(evidence: Evidence, published: Published) -> Verdict:
    """TASSO is ahead of SnD, its closest competitor in the paper, whatever the seed, in all metrics (MTIL, S1).

    The paper compares its seven seeds with one run of SnD; here both have the same seeds. Holds if TASSO is ahead in
    all three metrics by the paired test, does not hold if it is behind in one.
    """
    main, seeds = published.table("main-mtil"), published.table("seeds")
    parts = []
    for metric in CORE:
        ours, theirs = (evidence.values("seeds", row, "mtil", metric) for row in ("TASSO", "SnD"))
        printed = (seeds.number_of("mean", metric) or 0.0) - (main.number_of("snd", "S1", metric) or 0.0)
        spread = evidence.spread("mtil", metric)
        what = f"MTIL {WORDS[metric]}, TASSO against SnD"
        parts.append(Part(what, pair(ours, theirs, metric), spread, direction(metric) * printed))
    claim = "TASSO is ahead of SnD whatever the seed (MTIL, S1)"
    note = "The paper's leads are those of its mean over seven seeds over a single run of SnD."
    return or_untested(decide("seeds-snd", claim, parts, note=note), evidence, "seeds")
