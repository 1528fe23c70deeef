"""One plan per table or figure of the paper, as data: rows with their labels, and the runs behind each row.

Plans share runs: a row's jobs are named by their options, so that what two plans need is trained once. Beside the
paper's there are plans for what this project adds, and for the ways in which data grow, each on a benchmark of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tasso.config.ranks import PAPER_RANK, PAPER_WIDTH, OfWidth
from tasso.errors import ConfigError, no_such
from tasso.experiments.sweep import Job, combined

SEED = 1102  # of the paper's main tables, and of SnD's code
PAPER_SEEDS = (42, 123, 1234, 12345, 123456, 1234567, SEED)
SEQUENCES = tuple(f"S{number}" for number in range(1, 9))
TIMED = "timed"  # tag of runs that have the machine to themselves


@dataclass(frozen=True)
class TimesRate:
    """A learning rate as a multiple of the run's."""

    factor: float


@dataclass(frozen=True)
class Setup:
    """What all runs of an evaluation have in common.

    `common` are options of every run (benchmark, model, steps, …), `by_method` those of single methods: learning rates,
    GIFT's generator. A key `method.NAME` is a hyper-parameter. `width` is the length of the model's embeddings.
    `seeds` are those of the ablations, `main_seeds` those of the main tables; None: as the paper has them.
    """

    common: Mapping[str, Any] = field(default_factory=dict)
    by_method: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    width: int = PAPER_WIDTH
    seeds: tuple[int, ...] | None = None
    main_seeds: tuple[int, ...] | None = None
    sequences: tuple[str, ...] | None = None  # of the main tables

    @property
    def benchmark(self) -> str:
        return str(self.common.get("benchmark", "atlas"))

    @property
    def split(self) -> str:
        """The images that accuracies are measured on."""
        return str(self.common.get("evaluate_on", "test"))

    def job(self, method: str, hyper: Mapping[str, Any], sequence: str, seed: int, tag: str = "") -> Job:
        """One run: what is common, then what belongs to the method, then what the row says."""
        row = {f"method.{key}": value for key, value in hyper.items()}
        options = combined(method, self.common, self.by_method.get(method, {}), row)
        settled = {key: self._settle(value, options, method) for key, value in options["method"].items()}
        return Job({**options, "method": settled, "sequence": sequence, "seed": seed}, tag)

    def _settle(self, value: Any, options: Mapping[str, Any], method: str) -> Any:
        if isinstance(value, OfWidth):
            return value.scaled(self.width)
        if isinstance(value, TimesRate):
            rate = options["lr"] if "lr" in options else _default_rate(method, self.width)
            return value.factor * float(rate)  # a rate from a YAML file may be text
        return value


def _default_rate(method: str, width: int) -> float:
    from tasso.methods import METHODS
    from tasso.methods.defaults import run_defaults

    return float(run_defaults(METHODS[method], width)["lr"])


@dataclass(frozen=True)
class PlanRow:
    """A row of a table, or what a figure shows.

    Attributes:
        label: that of the paper, or the same in words where the paper has symbols.
        method: name of the method.
        options: its hyper-parameters that differ from the defaults.
        cells: the row's own columns, as heading and content.
        printed: key of the row in the paper's tables (`published.json`).
    """

    label: str
    method: str = "tasso"
    options: Mapping[str, Any] = field(default_factory=dict)
    cells: Mapping[str, str] = field(default_factory=dict)
    printed: str = ""

    @property
    def ours(self) -> bool:
        """Is it TASSO as the paper has it?"""
        return self.printed == "tasso"

    def label_at(self, setup: Setup) -> str:
        """The label, with the rank that the model at hand really gets."""
        rank = self.options.get("rank")
        if not isinstance(rank, OfWidth) or setup.width == PAPER_WIDTH:
            return self.label
        return f"r = {rank.scaled(setup.width)} of {setup.width} (paper: {rank.rank} of {PAPER_WIDTH})"


@dataclass(frozen=True)
class Plan:
    """A table or a figure and the runs it takes.

    `shows` is the label of the table or figure in the paper's source, or "" for what the paper leaves open. `seeds_of`
    says whose seeds these are: those of the main tables, those of the ablations, or the plan's own whatever is asked.
    `options` are those of its runs where the set-up says nothing else; a benchmark among them is the plan's own.
    """

    name: str
    title: str
    kind: Literal["table", "figure"]
    shows: tuple[str, ...]
    rows: tuple[PlanRow, ...] = ()
    sequences: tuple[str, ...] = ("S1",)
    seeds: tuple[int, ...] = (SEED,)
    seeds_of: Literal["main", "ablation", "plan"] = "ablation"
    tag: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    def setup_at(self, setup: Setup) -> Setup:
        own = {key: value for key, value in self.options.items() if key == "benchmark" or key not in setup.common}
        return replace(setup, common={**setup.common, **own})

    def seeds_at(self, setup: Setup) -> tuple[int, ...]:
        asked = {"main": setup.main_seeds, "ablation": setup.seeds, "plan": None}[self.seeds_of]
        return asked or self.seeds

    def sequences_at(self, setup: Setup) -> tuple[str, ...]:
        return (setup.sequences or self.sequences) if len(self.sequences) > 1 else self.sequences

    def jobs_of(self, row: PlanRow, setup: Setup) -> dict[tuple[str, int], Job]:
        """The runs behind one of its rows, by sequence and seed."""
        pairs = [(sequence, seed) for sequence in self.sequences_at(setup) for seed in self.seeds_at(setup)]
        return {pair: self.setup_at(setup).job(row.method, row.options, *pair, self.tag) for pair in pairs}

    def jobs(self, setup: Setup) -> list[Job]:
        """All runs of the plan, each once."""
        return list(dict.fromkeys(job for row in self.rows for job in self.jobs_of(row, setup).values()))


def chosen(names: Sequence[str]) -> list[Plan]:
    """The plans of these names, each once, in the order of the tables; a group's name stands for all of its plans."""
    known = {name: plan for group in GROUPS.values() for name, plan in group.items()}
    for name in names:
        if name not in known and name not in GROUPS:
            raise ConfigError(f"paper: {no_such('plan', name, [*known, *GROUPS])}")
    wanted = {member for name in names for member in GROUPS.get(name, (name,))}
    return [plan for name, plan in known.items() if name in wanted]


def all_jobs(plans: Sequence[Plan], setup: Setup) -> list[Job]:
    """All that these plans need, each run once: seed by seed, so that tables soon have all rows. Timed runs last."""
    jobs = dict.fromkeys(job for plan in plans for job in plan.jobs(setup))
    seeds = list(dict.fromkeys(job.options["seed"] for job in jobs))
    return sorted(jobs, key=lambda job: (bool(job.tag), seeds.index(job.options["seed"])))


# -- the rows ------------------------------------------------------------------------------------------------------

TASSO = PlanRow("TASSO", printed="tasso")
SND = PlanRow("SnD", "snd", printed="snd")
BOTH_TOWERS = PlanRow("TASSO, both towers", "tasso-both")
MAIN = (
    # Both towers, as in ZSCL's code: the paper's row is worse than its own ablation without KD and subspace, which is
    # fine-tuning of the image tower.
    PlanRow("fine-tuning (both towers)", "finetune", {"trainable": "both", "label_smoothing": 0.2}, printed="finetune"),
    PlanRow("LwF", "lwf", printed="lwf"),
    PlanRow("iCaRL", "icarl", printed="icarl"),
    PlanRow("ZSCL", "zscl", printed="zscl"),
    PlanRow("MoE-Adapters", "moe-adapters", printed="moe-adapters"),
    PlanRow("GIFT", "gift", printed="gift"),
    SND,
    TASSO,
)

UNDIVIDED = {"kd_parallel": "none", "kd_perpendicular": "none"}
# Without the subspace nothing is divided, and the distillation is on the whole embedding (docs/protocol.md).
NO_SUBSPACE: dict[str, dict[str, Any]] = {
    "✗": {"alpha": 0.0, "beta": 0.0},
    "L2": {"alpha": 0.0, **UNDIVIDED, "kd_whole": "l2"},
    "geo": {"alpha": 0.0, **UNDIVIDED, "kd_whole": "geodesic"},
}
DISTANCES = {"✗": "none", "L2": "l2", "geo": "geodesic"}


def _divided(inside: str, outside: str) -> dict[str, Any]:
    """Distances of the distillation inside and outside the subspace; without any, it is switched off."""
    if inside == outside == "✗":
        return {"beta": 0.0}
    return {"kd_parallel": DISTANCES[inside], "kd_perpendicular": DISTANCES[outside]}


def _component(distance: str, subspace: bool) -> PlanRow:
    options = _divided(distance, distance) if subspace else NO_SUBSPACE[distance]
    words = {"✗": "no KD", "L2": "L2", "geo": "geodesic"}[distance] + (", subspace" if subspace else ", no subspace")
    cells = {"L_KD": distance, "Subspace Learning": "✓" if subspace else "✗"}
    keys = {"✗": ("ce", "sub"), "L2": ("l2", "sub-l2"), "geo": ("geo", "tasso")}
    return PlanRow(words, options=options, cells=cells, printed=keys[distance][subspace])


def _distances(inside: str, outside: str) -> PlanRow:
    return PlanRow(
        f"f⊥ {outside}, f∥ {inside}",
        options=_divided(inside, outside),
        cells={"f⊥": outside, "f∥": inside},
        printed="tasso" if inside == outside == "geo" else "",
    )


def _values(sign: str, key: str, values: Sequence[Any], best: Any) -> tuple[PlanRow, ...]:
    return tuple(
        PlanRow(
            f"{sign} = {_number(value)}",
            options={key: value},
            cells={sign: _number(value)},
            printed="tasso" if value == best else f"{key}-{_number(value)}",
        )
        for value in values
    )


def _number(value: Any) -> str:
    return str(value.rank) if isinstance(value, OfWidth) else f"{value:g}"


_PLANS = (
    Plan(
        "main", "Accuracy, forgetting and zero-shot degradation of eight methods on eight sequences", "table",
        ("tab:main_results_MTIL", "tab:main_results_MCIL"), MAIN, SEQUENCES, seeds_of="main",
    ),
    Plan(
        "components", "Components: distillation distance, with and without subspace learning", "table",
        ("tab:abl_comp", "tab:abl_main"),
        tuple(_component(distance, subspace) for subspace in (False, True) for distance in DISTANCES),
    ),
    Plan(
        "rank", "Rank r of the subspace", "table", ("tab:abl_hyper", "subtab:hyper_rank"),
        _values("r", "rank", [OfWidth(rank) for rank in (72, 144, 288)], PAPER_RANK),
    ),
    Plan(
        "alpha", "Weight α of the subspace cross-entropy", "table", ("tab:abl_hyper", "subtab:hyper_alpha"),
        _values("α", "alpha", (0.1, 0.5, 1.0), 0.5),
    ),
    Plan(
        "beta", "Weight β of the distillation", "table", ("tab:abl_hyper", "subtab:hyper_beta"),
        _values("β", "beta", (1.5, 3.0, 6.0), 3.0),
    ),
    Plan(
        "whole-kd", "Distillation on the divided and on the undivided embedding", "table", ("subsec:decomposition",),
        (
            TASSO,
            PlanRow(
                "KD on the undivided embedding", options={**UNDIVIDED, "kd_whole": "geodesic"}, printed="undivided"
            ),
        ),
    ),
    Plan(
        "optimisation", "When image tower and projector are trained", "table", ("tab:optimization",),
        (
            TASSO,
            PlanRow("TASSO (no L_sub sup.)", options={"subspace_gradient": "projector"}, printed="stop"),
            PlanRow("TASSO (proj-dec)", options={"optimise": "projector-first"}, printed="first"),
            PlanRow("TASSO (alt)", options={"optimise": "alternate"}, printed="alternate"),
        ),
    ),
    Plan(
        "distances", "Distillation distance outside × inside the subspace", "table",
        ("subtab:kd_acc", "subtab:kd_for", "subtab:kd_deg"),
        tuple(_distances(inside, outside) for outside in DISTANCES for inside in DISTANCES),
    ),
    Plan(
        "seeds", "Seven seeds, mean and standard deviation", "table", ("tab:stat",), (TASSO, SND),
        seeds=PAPER_SEEDS, seeds_of="plan",
    ),
    Plan(
        "compute", "Time, FLOPs and memory", "table", ("sec:compute",),
        (TASSO, PlanRow("TASSO without subspace learning", options=NO_SUBSPACE["geo"], printed="geo"), SND),
        seeds_of="plan", tag=TIMED,
    ),
    Plan(
        "matrices", "Accuracy on each domain after each task", "table", ("tab:MTIL_matrix", "tab:MCIL_matrix"),
        (TASSO,), seeds_of="plan",
    ),
    Plan(
        "alignment", "Cosine distances between class texts and images after the last task", "figure",
        ("fig:cosine_dist", "fig:boxplot"), (TASSO, SND), seeds_of="plan",
    ),
    Plan("datasets", "Classes, training and test images of each data set", "table", ("tab:dsets",)),
    Plan("sequences", "The eight sequences", "table", ("tab:seqs",)),
    Plan(
        "projector", "Does the learned subspace matter?", "table", (),
        (
            TASSO,
            PlanRow("frozen random projector", options={"train_projector": False}),
            PlanRow("projector learning rate × 100", options={"projector_lr": TimesRate(100)}),
            PlanRow("projector started from the class texts", options={"projector_init": "texts"}),
            PlanRow("exact angle", options={"angle": "exact"}),
        ),
    ),
    Plan(
        "both-towers", "Beyond the paper: TASSO on both towers", "table", (), (TASSO, BOTH_TOWERS), SEQUENCES,
        seeds_of="main",
    ),
)  # fmt: skip
PLANS: dict[str, Plan] = {plan.name: plan for plan in _PLANS}

# -- beyond the paper ------------------------------------------------------------------------------------------------

ANCHORED = {"trainable": "both", "gamma": 10.0}
BEYOND: dict[str, Plan] = {
    plan.name: plan
    for plan in (
        Plan(
            "both-parts", "TASSO on both towers: is it the idea or the tower?", "table", (),
            (
                TASSO,
                BOTH_TOWERS,
                PlanRow("no anchors", "tasso-both", {"gamma": 0.0}),
                PlanRow("anchors: earlier names only", "tasso-both", {"anchors": "earlier"}),
                PlanRow("anchors: generic texts only", "tasso-both", {"anchors": "generic"}),
                PlanRow("no image distillation", "tasso-both", {"beta": 0.0}),
                PlanRow("no subspace cross-entropy", "tasso-both", {"alpha": 0.0}),
                PlanRow("no subspace, geodesic distance", "tasso-both", NO_SUBSPACE["geo"]),
                PlanRow("no subspace, squared L2 distance", "tasso-both", NO_SUBSPACE["L2"]),
                PlanRow("projector frozen as drawn", "tasso-both", {"train_projector": False}),
                PlanRow("SnD on both towers", "snd", {"trainable": "both"}),
                PlanRow("SnD on both towers, anchors", "snd", ANCHORED),
                PlanRow("fine-tuning of both towers", "finetune", {"trainable": "both"}),
                PlanRow("fine-tuning of both towers, anchors", "finetune", ANCHORED),
            ),
            ("S1", "S2"), (SEED, 1, 2), "main",
        ),
        Plan(
            "open-directions", "The paper's open directions: adaptive rank, subspaces from class texts", "table", (),
            (
                TASSO,
                PlanRow("adaptive rank, 90 % of the energy", options={"rank_energy": 0.9}),
                PlanRow("adaptive rank, 99 % of the energy", options={"rank_energy": 0.99}),
                PlanRow("projector started from the class texts", options={"projector_init": "texts"}),
            ),
            ("S1", "S2"), (SEED, 1, 2), "main",
        ),
    )
}  # fmt: skip

# -- ways in which data grow: all methods on small benchmarks that are drawn by code ---------------------------------

GROWTH_ROWS = tuple(
    # Nothing to download; its images come from the code that draws the tasks.
    replace(row, options={**row.options, "generator": "atlas"}) if row.method == "gift" else row
    for row in (*MAIN, BOTH_TOWERS)
)


def _growth(benchmark: str, title: str, steps: int, **options: Any) -> Plan:
    return Plan(
        benchmark, title, "table", (), GROWTH_ROWS, seeds=(SEED, 1, 2), seeds_of="main",
        options={"benchmark": benchmark, "steps": steps, "score_seen": True, **options},
    )  # fmt: skip


# Steps: every training image is seen two and a half times, however the classes are split. Titles begin with the kind of
# growth, and the ranking counts the plans of one kind as one.
GROWTH: dict[str, Plan] = {
    plan.name: plan
    for plan in (
        _growth("atlas-classes-8", "New classes: 96 in 8 steps", 60),
        _growth("atlas-classes-12", "New classes: 96 in 12 steps", 40),
        _growth("atlas-classes-24", "New classes: 96 in 24 steps", 20),
        _growth("atlas-styles", "New cameras: the same 24 classes in five styles", 120),
        _growth("atlas-50", "All mixed: 50 small tasks, classes and styles", 20, evaluate_every=5),
    )
}
SHARED = {**PLANS, **BEYOND}  # plans on the benchmark of the set-up, which may have runs in common
GROUPS: dict[str, Mapping[str, Plan]] = {"all": PLANS, "beyond": BEYOND, "growth": GROWTH}
