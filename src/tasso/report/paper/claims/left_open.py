"""What the paper leaves open, above all: does the *learned* subspace matter?"""

from __future__ import annotations

from dataclasses import replace

from tasso.report.collect import SETTINGS
from tasso.report.paper.evidence import CORE, Evidence
from tasso.report.paper.paired import CLOSE, threshold
from tasso.report.paper.published import Published
from tasso.report.paper.verdict import Verdict, compare, decide, or_untested
from tasso.report.tables import fixed

FROZEN = "frozen random projector"


def _open_question(evidence: Evidence, key: str, claim: str, first: str, second: str) -> Verdict:
    """Accuracy must be ahead in both settings; the other metrics must not be behind."""
    parts = [
        compare(evidence, None, "projector", first, second, setting, metric, ahead=metric == "accuracy")
        for setting in SETTINGS
        for metric in CORE
    ]
    found = or_untested(decide(key, claim, parts, question=True), evidence, "projector")
    spread = evidence.spread("mtil", "accuracy")
    if found.outcome == CLOSE and spread is not None and found.numbers:
        seen = fixed(threshold(found.numbers[0].pairs, spread), 2)
        note = f"Not shown to be nothing: a difference in MTIL accuracy below about {seen} would not be seen here."
        return replace(found, note=f"{found.note} {note}".strip())
    return found


def learned_subspace(evidence: Evidence, published: Published) -> Verdict:
    """Does it matter that the subspace is learned? TASSO against the same with a projector left as it was drawn.

    Yes ("holds") if accuracy is ahead in both settings and neither forgetting nor degradation is behind; no ("does not
    hold") if one of them is behind; too close to tell otherwise.
    """
    claim = "The learned subspace matters: TASSO is ahead of a frozen random projector"
    return _open_question(evidence, "learned-subspace", claim, "TASSO", FROZEN)


def faster_projector(evidence: Evidence, published: Published) -> Verdict:
    """The same question for a projector that learns 100 times faster; judged like `learned_subspace`."""
    claim = "A projector that learns 100 times faster is ahead of a frozen random one"
    return _open_question(evidence, "fast-projector", claim, "projector learning rate × 100", FROZEN)


def projector_from_texts(evidence: Evidence, published: Published) -> Verdict:
    """The same question for a projector that starts from the class texts; judged like `learned_subspace`."""
    claim = "A projector started from the class texts is ahead of a frozen random one"
    return _open_question(evidence, "text-projector", claim, "projector started from the class texts", FROZEN)


def exact_angle(evidence: Evidence, published: Published) -> Verdict:
    """Is the exact angle (atan2) better than the authors' clamped arccosine? Judged like `learned_subspace`."""
    claim = "The exact angle is ahead of the clamped arccosine"
    return _open_question(evidence, "exact-angle", claim, "exact angle", "TASSO")
