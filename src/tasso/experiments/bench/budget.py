"""Bounds for benches: ratios within one run, never times, so that one file holds for all machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasso.errors import ConfigError
from tasso.files import parse_json, read_text

SHIPPED = Path(__file__).with_name("budget.json")


@dataclass(frozen=True)
class Rule:
    """A bound for one value of one bench.

    Attributes:
        what: the bench.
        on: cuda or cpu.
        method: None for benches that have none.
        value: key of the result.
    """

    what: str
    on: str
    model: str
    method: str | None
    value: str
    at_least: float | None = None
    at_most: float | None = None

    def applies_to(self, result: Mapping[str, Any]) -> bool:
        """True if the result is of this bench, device, model and method, and has the value."""
        kind = "cuda" if result["cuda"] else "cpu"
        model = str(result["model"]).removesuffix(" (random weights)")
        method = result["method"]["name"] if "method" in result else None
        same = (self.what, self.on, self.model, self.method) == (result["what"], kind, model, method)
        return same and self.value in result

    def violation(self, result: Mapping[str, Any]) -> str | None:
        """A message if the result violates the rule, or None."""
        measured = result[self.value]
        if self.at_least is not None and measured < self.at_least:
            return f"{self.what}: {self.value} is {measured}, must be at least {self.at_least}"
        if self.at_most is not None and measured > self.at_most:
            return f"{self.what}: {self.value} is {measured}, must be at most {self.at_most}"
        return None


def read_budget(path: Path = SHIPPED) -> list[Rule]:
    try:
        document = parse_json(read_text(path))
        return [Rule(**rule) for rule in document["rules"]]
    except FileNotFoundError:
        raise ConfigError(f"budget: no such file: {path}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"budget: {path} is not a budget file: {error}") from None


def compare(results: Sequence[Mapping[str, Any]], rules: Sequence[Rule]) -> tuple[int, list[str]]:
    """The number of rules that apply to these results, and messages about those that are violated."""
    checked = [(rule, result) for result in results for rule in rules if rule.applies_to(result)]
    return len(checked), [message for rule, result in checked if (message := rule.violation(result))]
