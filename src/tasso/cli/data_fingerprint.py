"""What `tasso data check --model` compares: the model's zero-shot accuracy and the rows that are known for it."""

from __future__ import annotations

from tasso.config import PROTOCOLS, RunConfig
from tasso.data import BENCHMARKS
from tasso.data.prepare.fingerprint import Fingerprint, ZeroShot, measured_fingerprint
from tasso.report.paper.published import published
from tasso.report.peers import zero_shot_of
from tasso.training.evaluator import evaluate
from tasso.training.resolve import resolve

TEMPLATE = PROTOCOLS["code"]["template"]
PAPER_MODEL = "ViT-B-16-quickgelu"


def zero_shot(config: RunConfig) -> ZeroShot:
    """Evaluate the model. Known rows hold for one prompt and for whole test sets, so others are not compared."""
    found = evaluate(config)
    options = BENCHMARKS[config.benchmark].options if config.benchmark in BENCHMARKS else {}
    prompt = options.get("template", TEMPLATE)
    comparable = resolve(config)[0].template == prompt and config.test_per_class is None
    rows = {setting: dict(zip(found["tasks"], found[setting], strict=True)) for setting in ("mtil", "mcil")}
    return ZeroShot(
        found["model"], **rows, expected=known_fingerprint(config.benchmark, config.model) if comparable else None
    )


def known_fingerprint(benchmark: str, model: str) -> Fingerprint | None:
    """The paper's rows, those of the peers, or those that were measured with tasso; None if there are none."""
    if row := zero_shot_of(benchmark, model):
        values = row.tasks["zero_shot"]  # of one data set, all classes are those of its task
        return Fingerprint(row.source, *(({}, values) if row.setting == "mcil" else (values, {})))
    if (benchmark, model) != ("mtil", PAPER_MODEL):
        return measured_fingerprint(benchmark, model)
    rows = {}
    for setting in ("mtil", "mcil"):
        table = published().tables[f"matrix-{setting}"]
        printed = {column: table.number_of("zero-shot", column) for column in table.columns}
        rows[setting] = {name: value for name, value in printed.items() if value is not None}
    return Fingerprint("the paper", **rows)
