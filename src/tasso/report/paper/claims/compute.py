"""Claims on time."""

from __future__ import annotations

from tasso.report.paper.evidence import Evidence
from tasso.report.paper.paired import CLOSE, FAILS, HOLDS
from tasso.report.paper.published import Published
from tasso.report.paper.verdict import Finding, Verdict, untested

LITTLE = 0.05  # what of the time is next to none; our reading of "negligible"
SLACK = 0.1  # share of the time within which single runs are not told apart: the same run took 7 % less or more


def _seconds(evidence: Evidence, row: str) -> float | None:
    """Training time of a timed run, all tasks."""
    for run in evidence.of("compute", row).values():
        seconds = [cost.seconds for cost in run.costs]
        if seconds and all(value is not None for value in seconds):
            return sum(value for value in seconds if value is not None)
    return None


def _time_ratio(evidence: Evidence, first: str, second: str) -> float | None:
    times = [_seconds(evidence, row) for row in (first, second)]
    return times[0] / times[1] if times[0] is not None and times[1] else None


def subspace_is_cheap(evidence: Evidence, published: Published) -> Verdict:
    """Subspace learning takes next to no time: at most 5 % more than TASSO without it, one timed run each.

    Does not hold if it is more by so much that single runs tell it, another 10 %. The paper measures 3 s of 96 min.
    """
    claim = "Subspace learning takes next to no time (at most 5 % more)"
    ratio = _time_ratio(evidence, "TASSO", "TASSO without subspace learning")
    if ratio is None:
        return untested("time-subspace", claim, evidence, "compute")
    paper = _printed_seconds(published, "tasso") / _printed_seconds(published, "geo")
    finding = Finding("time with subspace learning / without", ratio, 1, "run", paper=paper, signed=False, digits=3)
    outcome = HOLDS if ratio <= 1 + LITTLE else FAILS if ratio > 1 + LITTLE + SLACK else CLOSE
    return Verdict("time-subspace", claim, outcome, (finding,), 1, few="one run")


def faster_than_snd(evidence: Evidence, published: Published) -> Verdict:
    """Training is faster than SnD's, one timed run each: holds beyond 10 %, does not hold if it is slower by that."""
    claim = "TASSO trains faster than SnD"
    ratio = _time_ratio(evidence, "TASSO", "SnD")
    if ratio is None:
        return untested("time-snd", claim, evidence, "compute")
    paper = _printed_seconds(published, "tasso") / _printed_seconds(published, "snd")
    finding = Finding("time of TASSO / time of SnD", ratio, 1, "run", paper=paper, signed=False, digits=3)
    outcome = HOLDS if ratio < 1 - SLACK else FAILS if ratio > 1 + SLACK else CLOSE
    return Verdict("time-snd", claim, outcome, (finding,), 1, few="one run")


def _printed_seconds(published: Published, row: str) -> float:
    text = published.table("compute").text(row, "Wall-clock time") or ""
    hours, minutes, seconds = (int(part.strip("hms")) for part in text.split())
    return float(3600 * hours + 60 * minutes + seconds)
