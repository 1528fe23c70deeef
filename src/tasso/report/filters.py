"""What a reader of the page can show and hide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasso.report.collect import SETTINGS, RunResult
from tasso.report.colours import legend_mark
from tasso.report.markup import Html, data, element
from tasso.report.tables import SETTING_NAMES, count_of

MANY_METHODS = 10  # more than these are folded away, or the bar would cover the page


@dataclass(frozen=True)
class Choices:
    """Methods, benchmarks and orders of a page, each with its number."""

    methods: dict[str, int]
    benchmarks: dict[str, int]
    orders: dict[str, int]
    runs: tuple[tuple[int, int, int], ...]

    @staticmethod
    def of(runs: Sequence[RunResult]) -> Choices:
        methods, benchmarks, orders = (
            {name: number for number, name in enumerate(dict.fromkeys(names))}
            for names in (
                (run.label for run in runs),
                (run.benchmark for run in runs),
                sorted({run.order for run in runs}),
            )
        )
        numbers = tuple((methods[run.label], benchmarks[run.benchmark], orders[run.order]) for run in runs)
        return Choices(methods, benchmarks, orders, numbers)

    def method(self, label: str | None) -> str | None:
        """The value of `data-method`; none for what is about no method of the runs."""
        return f"method-{self.methods[label]}" if label in self.methods else None

    def benchmark(self, name: str) -> str | None:
        """The value of `data-benchmark`; none for what belongs to all."""
        return f"benchmark-{self.benchmarks[name]}" if name in self.benchmarks else None

    def order(self, name: str) -> str | None:
        """The value of `data-order`; none for what belongs to all."""
        return f"order-{self.orders[name]}" if name in self.orders else None

    def content(self) -> Html:
        """What the script counts."""
        return data("runs", self.runs)


def filter_bar(choices: Choices) -> Html:
    """Controls that need the script; it takes `hidden` away, so that without it none is offered in vain."""
    settings = [_button("Both", pressed=True, data_show="both")]
    settings += [_button(SETTING_NAMES[name], pressed=False, data_show=name) for name in SETTINGS]
    first = [_group("Setting", settings)]
    if len(choices.benchmarks) > 1:
        first.append(_select("Benchmark", "benchmark", choices.benchmarks))
    if len(choices.orders) > 1:
        first.append(_select("Order", "order", choices.orders))
    return element(
        "div",
        element("div", *first, class_="line"),
        _methods(choices.methods),
        _state(),
        class_="filters",
        id="filters",
        role="region",
        aria_label="Filters",
        hidden=True,
    )


def _methods(methods: dict[str, int]) -> Html:
    toggles = [
        _button(label, legend_mark(index), pressed=True, data_toggle=f"method-{index}")
        for label, index in methods.items()
    ]
    every = [_button(words, data_all=state) for words, state in (("All", "true"), ("None", "false"))]
    group = _group("Methods", [*toggles, *(every if len(methods) > 2 else [])])
    if len(methods) <= MANY_METHODS:
        return group
    return element("details", element("summary", f"Choose among {count_of(len(methods), 'method')}"), group)


def _group(name: str, buttons: Sequence[Html]) -> Html:
    return element(
        "div", element("span", name, class_="name"), *buttons, role="group", aria_label=name, class_="choice"
    )


def _button(text: str, mark: Html | None = None, *, pressed: bool | None = None, **values: str) -> Html:
    state = None if pressed is None else "true" if pressed else "false"
    kind = None if pressed is not None else "plain"
    return element("button", mark or "", text, type="button", aria_pressed=state, class_=kind, **values)


def _select(name: str, key: str, choices: dict[str, int]) -> Html:
    options = [element("option", "all", value="")]
    options += [element("option", text, value=f"{key}-{number}") for text, number in choices.items()]
    label = element("label", name, for_=f"choose-{key}", class_="name")
    return element("div", label, element("select", *options, id=f"choose-{key}", data_choose=key), class_="choice")


def _state() -> Html:
    """What is shown, in words that a screen reader says when they change, and the way back."""
    status = element("span", id="filter-status", role="status", aria_live="polite")
    reset = element("button", "Show everything", type="button", class_="plain", id="reset", hidden=True)
    return element("p", status, " ", reset, class_="state")
