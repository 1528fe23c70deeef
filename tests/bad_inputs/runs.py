"""Run folders with damaged files or files of other runs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import safe_open
from safetensors.torch import save_file

from bad_inputs.case import Bad
from bad_inputs.world import LEARN, copy_over, cut, replace_by_folder, rewrite
from tasso.training.tensor_files import HEADER_KEY

AGAIN = ("run", *LEARN, "--out", "run")
HALF = ("run", *LEARN, "--steps", "3", "--out", "half")
EVAL = ("eval", "--run", "run", "--device", "cpu")
CHECKPOINT, LATER = "run/checkpoints/01-dtd.safetensors", "run/checkpoints/02-eurosat.safetensors"
FIRST = "half/checkpoints/01-dtd.safetensors"
ALL = ("model", "data", "run")

Tensors = dict[str, torch.Tensor]


def results(name: str, what: str, change: Callable[[Any], Any], says: str, words: tuple[str, ...] = EVAL) -> Bad:
    return Bad(
        f"run/results-{name}",
        what,
        words,
        rf"run/results\.json.*({says})",
        lambda p: rewrite(p / "run/results.json", change),
        ALL,
    )


# The position of a JSON error depends on measured times, and the reason of an OS error on the file system.
REASON = r"(?<=not valid JSON \()[^()]*\(char \d+\)|(?<=damaged \()[^()]*\(os error \d+\)"


def results_file(name: str, what: str, make: Callable[[Path], object], says: str, words: tuple[str, ...] = EVAL) -> Bad:
    return Bad(
        f"run/results-{name}",
        what,
        words,
        rf"run/results\.json.*({says})",
        lambda p: make(p / "run/results.json"),
        ALL,
        varies=REASON,
    )


def config(
    name: str, what: str, change: Callable[[dict[str, Any]], object], says: str, words: tuple[str, ...] = EVAL
) -> Bad:
    def make(place: Path) -> None:
        file = place / "run/config.yaml"
        document = yaml.safe_load(file.read_text())
        change(document)
        file.write_text(yaml.safe_dump(document))

    return Bad(f"run/config-{name}", what, words, says, make, ALL)


def tensors(file: str, change: Callable[[Tensors, dict[str, str]], object]) -> Callable[[Path], None]:
    """Change the tensors and the header of a safetensors file."""

    def make(place: Path) -> None:
        with safe_open(place / file, framework="pt") as opened:
            found = {name: opened.get_tensor(name).clone() for name in opened.keys()}  # noqa: SIM118
            header = dict(opened.metadata() or {})
        change(found, header)
        save_file(found, place / file, header or None)

    return make


def metadata(**changes: Any) -> Callable[[Tensors, dict[str, str]], None]:
    """Change the metadata in the header; None removes a key."""

    def change(_: Tensors, header: dict[str, str]) -> None:
        changed = {**json.loads(header[HEADER_KEY]), **changes}
        header[HEADER_KEY] = json.dumps({key: value for key, value in changed.items() if value is not None})

    return change


def first(start: str, value: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Tensors, dict[str, str]], None]:
    """Change the first floating-point tensor whose name starts with `start`."""

    def change(found: Tensors, _: dict[str, str]) -> None:
        name = next(
            n for n in sorted(found) if n.startswith(start) and found[n].is_floating_point() and found[n].numel() > 1
        )
        found[name] = value(found[name]).contiguous()

    return change


def with_nan(tensor: torch.Tensor) -> torch.Tensor:
    tensor.view(-1)[0] = math.nan
    return tensor


def state(name: str, what: str, change: Callable[[Tensors, dict[str, str]], object], says: str) -> Bad:
    return Bad(
        f"run/state-{name}",
        what,
        HALF,
        rf"half/state\.safetensors.*({says})",
        tensors("half/state.safetensors", change),
        ("model", "data", "half"),
    )


def state_file(name: str, what: str, make: Callable[[Path], object], says: str, needs: tuple[str, ...] = ()) -> Bad:
    return Bad(
        f"run/state-{name}",
        what,
        HALF,
        rf"half/state\.safetensors.*({says})",
        lambda p: make(p / "half/state.safetensors"),
        ("model", "data", "half", *needs),
        varies=REASON,
    )


def checkpoint(
    name: str, what: str, change: Callable[[Tensors, dict[str, str]], object], says: str, words: tuple[str, ...] = EVAL
) -> Bad:
    return Bad(
        f"run/checkpoint-{name}", what, words, rf"02-eurosat\.safetensors.*({says})", tensors(LATER, change), ALL
    )


def checkpoint_file(name: str, what: str, make: Callable[[Path], object], says: str) -> Bad:
    return Bad(
        f"run/checkpoint-{name}",
        what,
        EVAL,
        rf"02-eurosat\.safetensors.*({says})",
        lambda p: make(p / LATER),
        ALL,
        varies=REASON,
    )


def other_data(place: Path) -> None:
    rewrite(place / "data/dtd/dtd_annotations.json", lambda d: d["data"]["train"].pop() and None)


def renamed_classes(place: Path) -> None:
    rewrite(place / "data/dtd/dtd_annotations.json", lambda d: d.update(class_names=["x", "y"]))


def without(*keys: str) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for key in keys:
            del document[key]

    return change


CASES = [
    results_file("empty", "an empty results.json", lambda f: f.write_text(""), "not valid JSON"),
    results_file("truncated", "half a results.json", cut, "not valid JSON"),
    results_file("binary", "a binary results.json", lambda f: f.write_bytes(b"\xff\xfe\x00"), "not valid JSON|not a readable text"),
    results_file("list", "a list", lambda f: f.write_text("[]"), "not the results of a run"),
    results_file("folder", "a folder instead of the file", replace_by_folder, "[Ii]s a directory"),
    results_file("resumed-truncated", "half a results.json, and the run repeated", cut, "not valid JSON", AGAIN),
    results_file("extended-truncated", "half a results.json, and the run extended", cut, "not valid JSON",
                 ("extend", "run", "--tasks", "birds=data")),
    results("no-matrix", "no accuracies", without("mtil"), "not the results of a run"),
    results("version", "from a later version", lambda d: d.update(version=99), "version 99", AGAIN),
    results("version-eval", "from a later version, and evaluated", lambda d: d.update(version=99), "version 99"),
    results("version-report", "from a later version, and reported", lambda d: d.update(version=99), "version", ("report", "run")),
    results("tasks-number", "a number instead of the tasks", lambda d: d.update(tasks=3), "tasks"),
    results("matrix-text", "text instead of an accuracy matrix", lambda d: d["mtil"].update(matrix="x"), r"mtil"),
    results("matrix-list", "a list instead of a setting", lambda d: d.update(mcil=[]), r"mcil"),
    results("finished-text", "text instead of true or false", lambda d: d.update(finished="no"), "finished"),
    results("per-task", "nothing measured, though tasks were learned", lambda d: d.update(per_task=None), "per_task"),
    results("names", "no class names", without("class_names"), "class_names"),
    results("names-list", "a list instead of the class names", lambda d: d.update(class_names=[]), "class_names"),
    results("names-task", "no class names of a task", lambda d: d["class_names"].pop("dtd") and None, "class_names"),
    results("method", "an unknown method", lambda d: d.update(method="magic"), "method", ("export", "run", "--out", "exported")),
    results("percent", "an accuracy of 140 %, and reported", lambda d: d["mtil"]["matrix"][0].__setitem__(0, 140.0), r"mtil\.matrix\[0\]\[0\]", ("report", "run")),
    results("nan", "an accuracy of NaN, and reported", lambda d: d["mtil"]["matrix"][0].__setitem__(0, math.nan), r"mtil\.matrix\[0\]\[0\]", ("report", "run")),
    Bad("run/config-missing", "no config.yaml", EVAL, r"run/config\.yaml: no such file", lambda p: (p / "run/config.yaml").unlink(), ALL),
    Bad("run/config-truncated", "half a config.yaml", EVAL, r"run/config\.yaml", lambda p: (p / "run/config.yaml").write_text("benchmark: atlas\nmethod: {name: [\n"), ALL),
    Bad("run/config-empty", "an empty config.yaml, and the run repeated", AGAIN, r"run/config\.yaml: expected 'key: value' lines",
        lambda p: (p / "run/config.yaml").write_text(""), ALL),
    Bad("run/config-folder", "a folder instead of the file", EVAL, r"run/config\.yaml: not a readable text file", lambda p: replace_by_folder(p / "run/config.yaml"), ALL),
    config("later-key", "an option of a later version", lambda d: d.update(telepathy=True), r"run/config\.yaml: unknown key 'telepathy'"),
    config("bad-value", "an invalid value", lambda d: d.update(lr="fast"), r"run/config\.yaml: lr: expected a number"),
    config("model-gone", "a model that was removed", lambda d: d.update(model="local-dir:gone"), r"gone.*open_clip_config\.json"),
    config("other-model", "a model of another size", lambda d: d.update(model="nano"), r"run: the weights of nano are not those this run was started with"),
    config("method-gone", "an unknown method", lambda d: d.update(method={"name": "magic"}), r"no method 'magic'"),
    Bad("run/other-lr", "the run repeated with another learning rate", (*AGAIN, "--lr", "0.5"), r"run: this run was started with lr = 0\.001, not 0\.5.*--out", needs=ALL),
    Bad("run/other-method", "the run repeated with another method", ("run", *LEARN[:-4], "--method", "finetune", "--out", "run"),
        r"run: this run was started with", needs=ALL),
    Bad("run/other-sequence", "the run repeated with other tasks", (*AGAIN, "--sequence", "eurosat,dtd"), r"run: this run was started with sequence", needs=ALL),
    Bad("run/other-data", "a stopped run, and images that were removed since", HALF, r"half: the data of task 'dtd' have changed: 2 classes, 8 training", other_data, ("model", "data", "half")),
    Bad("run/other-names", "a stopped run, and classes that were renamed since", HALF, r"half: the data of task 'dtd' have changed: as many images", renamed_classes, ("model", "data", "half")),
    state_file("empty", "an empty state", lambda f: f.write_bytes(b""), "damaged"),
    state_file("truncated", "half a state", cut, "damaged"),
    state_file("head", "the first 100 bytes of a state", lambda f: f.write_bytes(f.read_bytes()[:100]), "damaged"),
    state_file("zeros", "zeros instead of a state", lambda f: f.write_bytes(bytes(4096)), "damaged"),
    state_file("longer", "extra bytes at the end", lambda f: f.write_bytes(f.read_bytes() + b"more"), "damaged"),
    state_file("header", "a changed byte in the header", lambda f: f.write_bytes(f.read_bytes()[:9] + b"\xff" + f.read_bytes()[10:]), "damaged"),
    state_file("huge-header", "a header that declares 2^60 bytes", lambda f: f.write_bytes((1 << 60).to_bytes(8, "little") + f.read_bytes()[8:]), "damaged"),
    state_file("folder", "a folder instead of the file", replace_by_folder, "damaged|[Ii]s a directory"),
    state_file("other-method", "the state of another method", lambda f: copy_over(f.parent.parent / "half-finetune/state.safetensors", f),
               "method", ("half-finetune",)),
    state_file("checkpoint", "a checkpoint instead of a state", lambda f: copy_over(f.parent / "checkpoints/01-dtd.safetensors", f), "not a resume state of version"),
    state("no-metadata", "a state without metadata", lambda t, header: header.clear(), "no metadata of this version"),
    state("metadata-text", "a state with metadata that are not JSON", lambda t, header: header.update({HEADER_KEY: "{"}), "damaged"),
    state("metadata-list", "a state with a list as metadata", lambda t, header: header.update({HEADER_KEY: "[]"}), "no metadata of this version"),
    state("earlier", "a state without a version", metadata(version=None), "not a resume state of version"),
    state("later", "a state of a later version", metadata(version=99), r"found: 99"),
    state("other-task", "a state of another task", metadata(task="moon"), "'moon'"),
    state("other-data", "a state of a run on other data", metadata(data="0123456789abcdef"), "other data"),
    state("seconds", "a state with text instead of seconds", metadata(seconds="long"), "seconds"),
    state("no-step", "a state without its step", lambda t, _: t.pop("step"), "step"),
    state("step-beyond", "a state beyond the last step", lambda t, _: t.update(step=torch.tensor(999)), "step 999"),
    state("step-negative", "a state before the first step", lambda t, _: t.update(step=torch.tensor(-1)), "step -1"),
    state("no-random", "a state without its random state", lambda t, _: t.pop("random/cpu"), "random/cpu"),
    state("random-short", "a random state that is too short", lambda t, _: t.update({"random/cpu": torch.zeros(3, dtype=torch.uint8)}), "random/cpu"),
    state("shape", "weights of another shape", first("model/", lambda t: t.reshape(-1)[:-1].clone()), "has shape"),
    state("nan", "weights with NaN", first("model/", with_nan), "contains inf or NaN"),
    state("moments-shape", "moments of another shape", first("optimizer/", lambda t: t.reshape(-1)[:-1].clone()), "optimizer/.*shape|shape"),
    state("moments-nan", "moments with NaN", first("optimizer/", with_nan), "contains inf or NaN"),
    state("projector-gone", "no tensors of the method", lambda t, _: [t.pop(n) for n in list(t) if n.startswith("method/")], "method/|missing|incomplete"),
    state("model-gone", "no weights", lambda t, _: [t.pop(n) for n in list(t) if n.startswith("model/")], "model/|missing|incomplete"),
    checkpoint_file("empty", "an empty checkpoint", lambda f: f.write_bytes(b""), "damaged"),
    checkpoint_file("truncated", "half a checkpoint", cut, "damaged"),
    checkpoint_file("missing", "a removed checkpoint", lambda f: f.unlink(), "missing"),
    checkpoint_file("pickle", "a pickle called .safetensors", lambda f: torch.save({"a": torch.ones(3)}, f), "damaged"),
    checkpoint_file("folder", "a folder instead of the file", replace_by_folder, "damaged|[Ii]s a directory"),
    checkpoint_file("other-task", "the checkpoint of another task", lambda f: copy_over(f.parent / "01-dtd.safetensors", f), "'dtd'"),
    checkpoint("shape", "weights of another shape", first("visual.", lambda t: t.reshape(-1)[:-1].clone()), "has shape"),
    checkpoint("nan", "weights with NaN", first("visual.", with_nan), "contains inf or NaN"),
    checkpoint("strange", "a tensor that the model does not have", lambda t, _: t.update(extra=torch.ones(2)), "'extra' does not belong"),
    checkpoint("incomplete", "a missing tensor", lambda t, _: t.pop(sorted(t)[0]), "missing|incomplete"),
    checkpoint("text", "integers instead of weights", first("visual.", lambda t: t.long()), "is torch.int64 instead of"),
    Bad("run/first-checkpoint-gone", "a stopped run whose first checkpoint was removed", HALF, r"01-dtd\.safetensors is missing", lambda p: (p / FIRST).unlink(), ("model", "data", "half")),
    Bad("run/first-checkpoint-nan", "a stopped run whose first checkpoint has NaN", HALF, r"01-dtd\.safetensors.*contains inf or NaN",
        tensors(FIRST, first("visual.", with_nan)), ("model", "data", "half")),
    Bad("run/first-checkpoint-other-method", "a stopped run with the first checkpoint of another method", HALF, r"01-dtd\.safetensors.*method",
        lambda p: copy_over(p / "half-finetune/checkpoints/01-dtd.safetensors", p / FIRST), ("model", "data", "half", "half-finetune")),
    Bad("run/not-a-folder", "a file instead of a run", ("eval", "--run", "data/dtd/dtd_annotations.json"), r"dtd_annotations\.json", needs=("data",)),
    Bad("run/nowhere", "a run that does not exist", ("eval", "--run", "nowhere"), r"nowhere"),
]  # fmt: skip
