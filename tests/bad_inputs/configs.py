"""YAML files that are no configurations, and values that no option takes."""

from __future__ import annotations

from bad_inputs.case import Bad


def file(name: str, what: str, content: str | bytes, says: str) -> Bad:
    written = content if isinstance(content, bytes) else content.encode()
    return Bad(
        f"config/{name}", what, ("run", "--config", "bad.yaml", "--out", "out"), rf"bad\.yaml.*({says})",
        lambda place: (place / "bad.yaml").write_bytes(written),
    )  # fmt: skip


def value(key: str, text: str, says: str, name: str = "") -> Bad:
    return file(f"{name or key}", f"`{key}: {text if len(text) < 40 else text[:37] + '…'}`", f"{key}: {text}\n", says)


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)

CASES = [
    file("empty", "an empty file", "", "expected 'key: value' lines"),
    file("list", "a list", "- a\n- b\n", "expected 'key: value' lines"),
    file("number", "a number", "42\n", "expected 'key: value' lines"),
    file("open-bracket", "a bracket that is not closed", "steps: [\n", "not valid YAML"),
    file("tab", "a tab in front of a key", "method:\n\tname: tasso\n", "not valid YAML"),
    file("two-documents", "two documents", "steps: 1\n---\nsteps: 2\n", "not valid YAML"),
    file("anchor", "an alias to nothing", "steps: *many\n", "not valid YAML"),
    file("tag", "a tag that would make a Python object", "label: !!python/object/apply:os.system ['touch pwned']\n",
         "not valid YAML.*python/object"),
    file("twice", "a key twice", "steps: 1\nlr: 0.1\nsteps: 2\n", "line 3.*'steps'.*twice|'steps'.*twice.*line 3"),
    file("twice-inside", "a hyper-parameter twice", "method: {name: tasso, rank: 3, rank: 4}\n", "'rank'.*twice"),
    file("nul", "a NUL byte", b"steps: 3\x00\n", "not valid YAML"),
    file("utf16", "UTF-16", "steps: 3\n".encode("utf-16"), "not a readable text file"),
    file("latin1", "Latin-1", "label: übung\n".encode("latin-1"), "not a readable text file"),
    file("binary", "an image", b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "not a readable text file"),
    file("deep", "two thousand brackets", "label: " + "[" * 2_000 + "]" * 2_000 + "\n", "nested too deeply"),
    file("bomb", "aliases that stand for a thousand million words", BOMB, "too large"),
    file("digits", "a number of five thousand digits", f"steps: {'9' * 5000}\n", "not valid YAML|steps: must be"),
    file("date", "a date that there is not", "label: 2023-13-45\n", "not valid YAML"),
    file("unknown", "a key that there is not", "stepps: 3\n", "unknown key 'stepps'"),
    file("unknown-number", "a number as key", "1: 2\n", "unknown key 1"),
    file("unknown-null", "nothing as key", "~: 2\n", "unknown key None"),
    file("unhashable", "a list as key", "? [a, b]\n: 3\n", "not valid YAML"),
    value("steps", "many", "steps: expected a whole number or nothing, not 'many'"),
    value("steps", "true", "steps: expected a whole number", "steps-true"),
    value("steps", "2.5", "steps: expected a whole number", "steps-fraction"),
    value("steps", "-3", "steps: must be at least 1, not -3", "steps-negative"),
    value("steps", "[3]", "steps: expected a whole number", "steps-list"),
    value("lr", ".nan", "lr: must be a finite number, not nan", "lr-nan"),
    value("lr", ".inf", "lr: must be a finite number, not inf", "lr-inf"),
    value("lr", "9" * 400, "lr: must be a finite number", "lr-digits"),
    value("lr", "1e-3x", "lr: expected a number", "lr-letters"),
    value("lr", "{a: 1}", "lr: expected a number", "lr-mapping"),
    value("lr", "-1e-4", "lr: must be positive", "lr-negative"),
    value("weight_decay", ".inf", "weight_decay: .*inf", "weight-decay-inf"),
    value("weight_decay", "-1", "weight_decay: must not be negative", "weight-decay-negative"),
    value("batch_size", "0", "batch_size: must be at least 1, not 0"),
    value("batch_size", "null", "batch_size: expected a whole number, not None", "batch-null"),
    value("reference_batch_size", "1.0", "reference_batch_size: expected a whole number"),
    value("accumulate", "5", "batch_size: must be a multiple of accumulate"),
    value("eval_batch_size", "0", "eval_batch_size: must be at least 1"),
    value("warmup", "-1", "warmup: must not be negative"),
    value("workers", "-2", "workers: must not be negative"),
    value("workers", "1000000", "workers: must be .*1000000", "workers-many"),
    value("seed", "-1", "seed: must not be negative"),
    value("seed", "99999999999999999999", "seed: must be below 2\\^48", "seed-huge"),
    value("seed", "one", "seed: expected a whole number", "seed-word"),
    value("test_share", "2", r"test_share: must lie in \(0, 1\], not 2", "test-share-two"),
    value("test_share", ".nan", "test_share: must be a finite number, not nan", "test-share-nan"),
    value("shots", "0", "shots: must be at least 1"),
    value("limit_tasks", "0", "limit_tasks: must be at least 1"),
    value("cache_gib", "-1", "cache_gib: must not be negative"),
    value("pack_size", "0", "pack_size: must be at least 1"),
    value("save_every", "0", "save_every: must be at least 1"),
    value("check_counts", "3", "check_counts: expected true or false"),
    value("overwrite", "'yes'", "overwrite: expected true or false"),
    value("protocol", "mine", "protocol: expected one of code, paper"),
    value("compile", "maybe", "compile: expected one of auto, on, off"),
    value("label", "[a]", "label: expected text"),
    value("out", '"a\\0b"', "out: .*null", "out-nul"),
    value("model", "3", "model: expected text"),
    value("model", '"local-dir:a\\0b"', "model: .*null", "model-nul"),
    value("betas", "[0.9, 0.99, 0.999]", "betas: expected 2 values", "betas-three"),
    value("betas", "[a, b]", "betas: expected 2 values", "betas-words"),
    value("method", "null", "method: expected a mapping", "method-null"),
    value("method", "{rank: 3}", "method: needs a name", "method-nameless"),
    value("method", "[tasso]", "method: expected a mapping", "method-list"),
    value("tasks", "[]", "tasks: none given", "tasks-empty"),
    value("tasks", "3", "tasks: expected NAME=PLACE", "tasks-number"),
    value("tasks", "{S1: birds}", "tasks: 'S1' cannot be the name of a task", "tasks-rotation"),
    value("tasks", "{'../x': birds}", "tasks: '../x' cannot be the name of a task", "tasks-path"),
    value("tasks", "{birds: {names: n.txt}}", "tasks: birds: from: expected a path", "tasks-fromless"),
    value("tasks", "{birds: {from: b, colour: red}}", "tasks: birds: unknown key 'colour'", "tasks-unknown"),
    value("tasks", "{birds: a, Birds: b}", "tasks: two tasks are called 'Birds'", "tasks-twice"),
    value("tasks", "{birds: {from: b, columns: [a]}}", "tasks: birds: columns: expected a mapping", "tasks-columns"),
    value("tasks", '{birds: "a\\0b"}', "birds.*null", "tasks-nul"),
]  # fmt: skip
