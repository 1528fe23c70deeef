"""Losses, slow and obvious."""

from __future__ import annotations

import math


def softmax(row: list[float]) -> list[float]:
    powers = [math.exp(value - max(row)) for value in row]
    return [power / sum(powers) for power in powers]


def slow_d(teacher: list[list[float]], student: list[list[float]], temperature: float) -> float:
    """T² · mean over rows of −Σ p·log q, written out."""
    total = 0.0
    for t, s in zip(teacher, student, strict=True):
        p, q = softmax([x / temperature for x in t]), softmax([x / temperature for x in s])
        total -= sum(a * math.log(b) for a, b in zip(p, q, strict=True))
    return temperature**2 * total / len(teacher)
