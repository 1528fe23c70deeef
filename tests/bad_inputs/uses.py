"""Commands that use a run, with bad arguments."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bad_inputs.case import Bad
from bad_inputs.world import image, rewrite

ALL = ("model", "data", "run")
EXTEND = ("extend", "run", "--device", "cpu", "--out", "longer", "--tasks")


def use(
    name: str,
    what: str,
    says: str,
    *args: str,
    make: Callable[[Path], object] = lambda place: None,
    needs: tuple[str, ...] = ALL,
) -> Bad:
    return Bad(f"use/{name}", what, args, says, make, needs)


def matrix(name: str, what: str, content: Any, says: str) -> Bad:
    text = content if isinstance(content, str) else json.dumps(content)
    return Bad(
        f"use/metrics-{name}",
        what,
        ("metrics", "m.json"),
        rf"m\.json.*({says})",
        lambda p: (p / "m.json").write_text(text),
    )


def classify(name: str, what: str, says: str, *more: str) -> Bad:
    return use(
        f"classify-{name}",
        what,
        says,
        "classify",
        "run",
        "x.png",
        "--device",
        "cpu",
        *more,
        make=lambda p: image().save(p / "x.png"),
    )


def report(name: str, what: str, change: Callable[[Any], Any], says: str) -> Bad:
    return use(
        f"report-{name}",
        what,
        rf"run/results\.json.*({says})",
        "report",
        "run",
        make=lambda p: rewrite(p / "run/results.json", change),
    )


def taken(place: Path) -> None:
    (place / "taken").mkdir()
    (place / "taken/mine.txt").write_text("mine")


def unfinished(place: Path) -> None:
    rewrite(place / "run/results.json", lambda d: d.update(finished=False))


def budget(name: str, what: str, text: str) -> Bad:
    return Bad(
        f"use/bench-budget-{name}",
        what,
        ("bench", "step", "--quick", "--check", "--budget", "b.json"),
        r"budget: b\.json",
        lambda p: (p / "b.json").write_text(text),
    )


CASES = [
    Bad("use/run-test-share", "a run without training images", ("run", "--benchmark", "atlas", "--test-share", "1", "--out", "out"), "test_share: 1 leaves nothing to train on; it is for tasso eval"),
    use("eval-after", "a task that was not learned", r"after: run has learned no task 'moon'", "eval", "run", "--after", "moon"),
    use("eval-after-number", "a number beyond the last task", r"after: run has learned no task '7'", "eval", "run", "--after", "7"),
    use("eval-option", "an option of training", r"lr", "eval", "run", "--lr", "1"),
    use("eval-batch", "a batch of nothing", r"eval_batch_size: must be at least 1", "eval", "run", "--eval-batch-size", "0"),
    classify("task", "a task that the run does not have", r"task: this run has no task 'moon'. There are: dtd, eurosat", "--task", "moon"),
    classify("both", "a task and classes", r"classes: give either classes or a task", "--task", "dtd", "--classes", "a,b"),
    classify("classes", "no classes", r"classes: give at least one class name", "--classes", ","),
    classify("top", "no predictions", r"top: must be at least 1, not 0", "--top", "0"),
    classify("after", "an unknown model", r"after: run has learned no task '9'", "--after", "9"),
    classify("device", "an unknown device", r"device: 'tpu'", "--device", "tpu"),
    use("classify-no-run", "a folder that is not a run", r"data: not a run folder, it has no results\.json", "classify", "data", "x.png"),
    use("serve-no-run", "a folder that is not a run", r"data: not a run folder, it has no results\.json", "serve", "data", "--port", "0"),
    use("serve-port", "a port above 65535", r"serve: cannot listen at 127\.0\.0\.1, port 99999", "serve", "run", "--port", "99999"),
    use("serve-port-negative", "a negative port", r"serve: cannot listen at 127\.0\.0\.1, port -1", "serve", "run", "--port=-1"),
    Bad("use/serve-host", "an invalid address", ("serve", "run", "--host", "999.999.999.999", "--port", "0"), r"serve: cannot listen at 999\.999\.999\.999", needs=ALL, varies=r"\[Errno.*?\.(?= )"),
    use("serve-size", "uploads of 0 MiB", r"max_mib: must lie in 0 … 1024, not 0", "serve", "run", "--max-mib", "0"),
    use("serve-size-nan", "uploads of nan MiB", r"max-mib: expected a number, not 'nan'", "serve", "run", "--max-mib", "nan"),
    use("export-nothing", "nothing to export", r"export: give either RUN or --model", "export", "--out", "e"),
    use("export-both", "a run and a model", r"export: give either RUN or --model", "export", "run", "--model", "nano", "--out", "e"),
    use("export-format", "an unknown format", r"to.*gguf", "export", "run", "--to", "gguf", "--out", "e"),
    use("export-taken", "a folder that is not empty", r"export: taken exists and is not empty", "export", "run", "--out", "taken", make=taken),
    use("export-below-file", "a folder below a file", r"export: cannot make the folder .*taken/mine\.txt/e", "export", "run", "--out", "taken/mine.txt/e", make=taken),
    use("export-after", "an unknown model", r"after: run has learned no task 'moon'", "export", "run", "--after", "moon", "--out", "e"),
    use("export-no-run", "a folder that is not a run", r"data: not a run folder, it has no results\.json", "export", "data", "--out", "e"),
    use("merge-alpha", "an alpha above 1", r"alpha: must lie in 0 … 1, not 1\.5", "merge", "run", "run", "--alpha", "1.5", "--out", "m"),
    use("merge-alpha-nan", "an alpha of NaN", r"alpha: expected a number, not 'nan'", "merge", "run", "run", "--alpha", "nan", "--out", "m"),
    use("merge-sweep", "text as alphas", r"sweep: expected numbers with commas", "merge", "run", "run", "--sweep", "a,b", "--out", "m"),
    use("merge-sweep-empty", "no alphas", r"sweep: give at least one", "merge", "run", "run", "--sweep", ",", "--out", "m"),
    use("merge-both", "alpha and alphas", r"merge: give either --alpha or --sweep", "merge", "run", "run", "--alpha", "0.5", "--sweep", "0,1", "--out", "m"),
    use("merge-option", "an option of the evaluation without one", r"merge: --workers belongs to --sweep", "merge", "run", "run", "--workers", "1", "--out", "m"),
    use("merge-folder", "a folder that is not a run", r"merge: data: not a run folder, it has no results\.json", "merge", "data", "run", "--out", "m"),
    use("merge-kinds", "models of different architectures", r"merge: .*nano", "merge", "run", "nano", "--out", "m"),
    use("merge-nowhere", "a checkpoint that does not exist", r"gone/checkpoints/01-x\.safetensors", "merge", "run", "gone/checkpoints/01-x.safetensors", "--out", "m"),
    use("merge-taken", "a folder that is not empty", r"merge: taken exists and is not empty", "merge", "run", "run", "--out", "taken", make=taken),
    use("extend-nowhere", "a run that does not exist", r"nowhere: no such run folder", "extend", "nowhere", "--tasks", "birds=data"),
    use("extend-unfinished", "a run that is not finished", r"run: this run is not finished", *EXTEND, "birds=birds", make=unfinished, needs=(*ALL, "birds")),
    use("extend-no-tasks", "no tasks", r"tasks: which shall be learned", "extend", "run"),
    use("extend-known", "a task that was learned already", r"tasks: run has a task 'dtd' already", *EXTEND, "dtd=birds", needs=(*ALL, "birds")),
    use("extend-itself", "the run itself as the new folder", r"out: run is the run itself", "extend", "run", "--tasks", "birds=birds", "--out", "run", needs=(*ALL, "birds")),
    use("extend-option", "another learning rate", r"lr", "extend", "run", "--tasks", "birds=birds", "--lr", "1", needs=(*ALL, "birds")),
    use("extend-model-gone", "a run whose last checkpoint was removed", r"02-eurosat\.safetensors is missing", *EXTEND, "birds=birds",
        make=lambda p: (p / "run/checkpoints/02-eurosat.safetensors").unlink(), needs=(*ALL, "birds")),
    use("extend-data-gone", "a run whose data were removed", r"data_root: no such folder: .*nowhere", *EXTEND, "birds=birds", "--data-root", "nowhere", needs=(*ALL, "birds")),
    use("extend-images", "new images that do not exist", r"birds.*no such file or folder", *EXTEND, "birds=nowhere"),
    use("report-nowhere", "a folder that does not exist", r"nowhere: no such run folder", "report", "nowhere"),
    use("report-empty", "a folder without runs", r"data: not a run folder, it has no results\.json", "report", "data"),
    use("report-file", "a file that is not a run", r"dtd_annotations\.json: expected a run folder", "report", "data/dtd/dtd_annotations.json"),
    use("report-format", "an unknown format", r"format.*word", "report", "run", "--format", "word"),
    use("report-html-folder", "a page below a file", r"taken/mine\.txt", "report", "run", "--html", "taken/mine.txt/page.html", make=taken),
    report("no-version", "results without a version", lambda d: d.pop("version") and None, "missing key 'version'"),
    report("large", "an accuracy of four hundred digits", lambda d: d["mtil"]["matrix"][0].__setitem__(0, int("9" * 400)), r"mtil\.matrix\[0\]\[0\]"),
    report("tasks", "a task twice", lambda d: d.update(tasks=["dtd", "dtd"]), "tasks: a task is named twice"),
    report("rows", "a missing row in a finished run", lambda d: d["mtil"]["matrix"].pop() and None, "mtil.matrix: wrong size"),
    report("row", "a row of other length", lambda d: d["mtil"]["matrix"][0].pop() and None, r"mtil\.matrix\[0\]: wrong size"),
    report("metrics", "no metrics in a finished run", lambda d: d["mtil"].update(metrics=None), "mtil.metrics: null in a finished run"),
    report("seed", "a seed that is text", lambda d: d.update(seed="one"), "seed: expected a whole number"),
    report("alignment", "distances that are text", lambda d: d.update(alignment="near"), "alignment: expected an object"),
    report("classes", "a number of classes that is text", lambda d: d["classes"].update(dtd="many"), r"classes\.dtd: expected a whole number"),
    use("report-loop", "a folder of links to itself", r"loops", "report", "loops", make=lambda p: [(p / "loops").mkdir(), (p / "loops/a").symlink_to("../loops"), (p / "loops/b").symlink_to("b")]),
    use("metrics-nowhere", "a file that does not exist", r"no\.json: no such file", "metrics", "no.json"),
    use("metrics-folder", "a folder without results", r"data: not a run folder, it has no results\.json", "metrics", "data"),
    use("metrics-checkpoint", "a checkpoint", r"01-dtd\.safetensors: not a text file", "metrics", "run/checkpoints/01-dtd.safetensors"),
    matrix("empty", "an empty file", "", "not valid JSON"),
    matrix("list", "a list", [], "expected an object"),
    matrix("keys", "other keys", {"a": 1}, "has neither 'matrix' nor 'mtil'"),
    matrix("rows", "a missing row", {"zero_shot": [1, 2], "matrix": [[1, 2]]}, "matrix has 1 rows"),
    matrix("ragged", "rows of different lengths", {"zero_shot": [1, 2], "matrix": [[1, 2], [1]]}, r"matrix\[1\] must be 2 numbers"),
    matrix("text", "text among the numbers", {"zero_shot": [1, "b"], "matrix": [[1, 2], [1, 2]]}, "zero_shot must be a list of numbers"),
    matrix("nan", "an accuracy of NaN", {"zero_shot": [1, 2], "matrix": [[1, math.nan], [1, 2]]}, r"matrix\[0\] must be 2 numbers"),
    matrix("infinite", "an infinite accuracy", {"zero_shot": [1, math.inf], "matrix": [[1, 2], [1, 2]]}, "zero_shot must be"),
    matrix("large", "a number of four hundred digits", f'{{"zero_shot": [{"9" * 400}], "matrix": [[1]]}}', "zero_shot must be"),
    matrix("begun", "a run that has learned no task", {"zero_shot": [50.0], "matrix": []}, "no task has been learned yet"),
    matrix("null", "a matrix of nothing", {"zero_shot": [], "matrix": []}, "matrix must be a list of rows"),
    matrix("setting", "a setting that is a list", {"mtil": []}, "mtil: expected an object"),
    matrix("digits", "a number of five thousand digits", f'{{"zero_shot": [{"9" * 5000}], "matrix": [[1]]}}', "not valid JSON|zero_shot must be"),
    matrix("deep", "a hundred thousand brackets", "[" * 100_000, "nested too deeply|not valid JSON"),
    budget("text", "a budget that is not JSON", "{"),
    budget("list", "a budget of numbers", "[1]"),
    Bad("use/bench-budget-missing", "a budget that does not exist", ("bench", "step", "--check", "--budget", "no.json"), r"budget: no such file: no\.json"),
    Bad("use/bench-classes", "no classes", ("bench", "step", "--quick", "--classes-per-task", "0"), r"classes-per-task: must be at least"),
    Bad("use/bench-method", "an unknown method", ("bench", "step", "--quick", "--method", "magic"), r"no method 'magic'"),
    Bad("use/bench-json", "a result in a folder that does not exist", ("bench", "step", "--quick", "--out", "no/where.json"), r"out: no/where\.json cannot be written"),
]  # fmt: skip
