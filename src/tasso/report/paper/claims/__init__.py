"""The paper's claims, one function each: from what was measured to a verdict. Its docstring is its rule."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tasso.report.collect import SETTINGS
from tasso.report.paper.claims.ablations import (
    SIGNS,
    divided_distillation,
    geodesic_ahead_of_l2,
    geodesic_in_both_parts,
    joint_training,
    parts_are_complementary,
    robust_to,
)
from tasso.report.paper.claims.alignment import closer_to_the_texts
from tasso.report.paper.claims.compute import faster_than_snd, subspace_is_cheap
from tasso.report.paper.claims.left_open import exact_angle, faster_projector, learned_subspace, projector_from_texts
from tasso.report.paper.claims.main import best_on_sequences
from tasso.report.paper.claims.seeds import ahead_with_every_seed, seed_spread
from tasso.report.paper.evidence import CORE, Evidence
from tasso.report.paper.published import Published
from tasso.report.paper.verdict import Verdict


def verdicts(evidence: Evidence, published: Published) -> list[Verdict]:
    """All claims, then what the paper leaves open."""
    rules: list[Callable[[Evidence, Published], Verdict]] = []
    for metric in CORE:
        rules += [partial(best_on_sequences, setting=setting, metric=metric) for setting in SETTINGS]
    for rule in (geodesic_ahead_of_l2, parts_are_complementary):
        rules += [partial(rule, setting=setting) for setting in SETTINGS]
    rules += [divided_distillation, geodesic_in_both_parts, joint_training]
    for plan in SIGNS:
        rules += [partial(robust_to, setting=setting, plan=plan) for setting in SETTINGS]
    rules += [seed_spread, ahead_with_every_seed, closer_to_the_texts, subspace_is_cheap, faster_than_snd]
    rules += [learned_subspace, faster_projector, projector_from_texts, exact_angle]
    return [rule(evidence, published) for rule in rules]
