"""Sweeps and plans that cannot be carried out; --dry-run where nothing else is needed to find out."""

from __future__ import annotations

from pathlib import Path

from bad_inputs.case import Bad


def sweep(name: str, what: str, says: str, *more: str) -> Bad:
    return Bad(f"sweep/{name}", what, ("sweep", "--out", "out", "--dry-run", *more), says)


def file(name: str, what: str, text: str, says: str) -> Bad:
    return Bad(f"sweep/file-{name}", what, ("sweep", "--out", "out", "--dry-run", "--config", "sweep.yaml"), says,
               lambda p: (p / "sweep.yaml").write_text(text))  # fmt: skip


def paper(name: str, what: str, says: str, *args: str) -> Bad:
    return Bad(f"paper/{name}", what, ("paper", *args), says)


def rates(name: str, what: str, text: str, says: str) -> Bad:
    return Bad(f"paper/rates-{name}", what, ("paper", "main", "--out", "out", "--dry-run", "--rates", "rates.yaml"), says,
               lambda p: (p / "rates.yaml").write_text(text))  # fmt: skip


def runs_folder(content: str) -> object:
    def make(place: Path) -> None:
        (place / "runs/a").mkdir(parents=True)
        (place / "runs/a/results.json").write_text(content)

    return make


CASES = [
    sweep("method", "a method that there is not", r"methods: no method 'magic'", "--methods", "tasso,magic"),
    sweep("methods-empty", "no methods", r"methods", "--methods", ","),
    sweep("sequence", "a sequence that there is not", r"sequence.*S99", "--sequences", "S99"),
    sweep("seeds", "a word as seed", r"seeds: expected whole numbers", "--seeds", "1,two"),
    sweep("seed-negative", "a negative seed", r"seed: must not be negative", "--seeds=-1"),
    sweep("set", "a change without its value", r"set: expected KEY=VALUE, not 'lr'", "--set", "lr"),
    sweep("set-key", "an option that there is not", r"stpes", "--set", "stpes=1,2"),
    sweep("set-method", "an option that no method has", r"method\.rnk: none of tasso has", "--set", "method.rnk=1"),
    sweep("set-bad", "a value that the option does not take", r"lr: must be positive", "--set", "lr=0.1,-1"),
    sweep("set-nan", "a learning rate that is no number", r"lr: must be .*nan", "--set", "lr=.nan"),
    sweep("set-yaml", "a value that cannot be read", r"set: 'lr=\[': the value cannot be parsed", "--set", "lr=["),
    sweep("set-seed", "a seed among the options", r"seed: in a sweep these are seeds", "--set", "seed=1,2"),
    sweep("for", "a method that is not swept", r"for: zscl is not among the methods", "--for", "zscl", "lr=1"),
    sweep("for-nothing", "a method without options", r"for tasso: expected KEY=VALUE", "--for", "tasso"),
    sweep("for-several", "several values for one method", r"for tasso: lr has several values", "--for", "tasso", "lr=1,2"),
    sweep("choose-test", "a choice by test images", r"choose: .*images that judge them", "--choose", "mtil", "--set", "lr=1e-4,1e-3", "--evaluate-on", "test"),
    sweep("choose-nothing", "nothing to choose among", r"choose: needs --set", "--choose", "mtil"),
    sweep("rates-missing", "a file of rates that is not there", r"no\.json: no such file", "--rates", "no.json"),
    sweep("gpus", "a word as GPU", r"gpus: expected whole numbers", "--gpus", "all", "--steps", "1"),
    sweep("engine", "an engine that there is not", r"engine.*steam", "--engine", "steam"),
    Bad("sweep/jobs", "no runs at once", ("sweep", "--out", "out", "--jobs", "0", "--steps", "1"), r"jobs"),
    Bad("sweep/gpu-absent", "a GPU that is not there", ("sweep", "--out", "out", "--gpus", "97", "--steps", "1"), r"gpus: there is no GPU", varies=r"(?<=there is no GPU) .*"),
    Bad("sweep/out-file", "a file as folder of runs", ("sweep", "--out", "taken", "--steps", "1"), r"taken", lambda p: (p / "taken").write_text("mine")),
    Bad("sweep/file-missing", "a file that is not there", ("sweep", "--out", "out", "--config", "no.yaml"), r"no\.yaml: no such file"),
    file("unknown", "a key that there is not", "colour: red\n", r"sweep\.yaml: unknown key 'colour'"),
    file("method", "one method instead of methods", "method: tasso\n", r"sweep\.yaml: method: in a sweep these are methods"),
    file("methods-mapping", "a mapping in the place of methods", "methods: {tasso: 1}\n", r"methods"),
    file("seeds-text", "words as seeds", "seeds: [one]\n", r"seed"),
    file("set-list", "a list in the place of changes", "set: [1]\n", r"sweep\.yaml: set: expected 'key: value' lines"),
    file("for-number", "a number in the place of options", "for: {tasso: 3}\n", r"sweep\.yaml: for: tasso: expected"),
    file("yaml", "a file that is no YAML", "methods: [\n", r"sweep\.yaml: not valid YAML"),
    file("twice", "a key twice", "seeds: [1]\nseeds: [2]\n", r"sweep\.yaml.*'seeds'.*twice"),
    paper("nothing", "tasso paper, and no more", r"paper: name one plan or more"),
    paper("plan", "a plan that there is not", r"moon", "moon", "--out", "out"),
    paper("no-out", "a plan without a folder", r"paper: .*--out", "main"),
    paper("lr", "one learning rate for all methods", r"lr: every method has a rate of its own", "main", "--out", "out", "--lr", "1"),
    paper("seeds", "a word as seed", r"seeds: expected whole numbers", "main", "--out", "out", "--seeds", "x"),
    paper("main-seeds", "a fraction as seed", r"main-seeds: expected whole numbers", "main", "--out", "out", "--main-seeds", "1.5"),
    paper("sequence", "a sequence that there is not", r"sequence.*S12", "main", "--out", "out", "--dry-run", "--sequences", "S12"),
    paper("for", "a method that there is not", r"for: no method 'magic'", "main", "--out", "out", "--for", "magic", "lr=1"),
    paper("model", "a model that nobody knows", r"model: .*'ViT-Z'", "main", "--out", "out", "--dry-run", "--model", "ViT-Z"),
    paper("runs-nowhere", "a report from runs that are not there", r"nowhere", "main", "--out", "out", "--runs", "nowhere"),
    rates("method", "rates for a method that there is not", "magic: 1e-4\n", r"rates\.yaml: no method 'magic'"),
    rates("negative", "a negative rate", "tasso: -1\n", r"lr: must be positive"),
    rates("text", "text in the place of a rate", "tasso: fast\n", r"lr: expected a number"),
    rates("list", "a list", "- 1\n", r"rates\.yaml: expected 'key: value' lines"),
    Bad("paper/rates-missing", "a file of rates that is not there", ("paper", "main", "--out", "out", "--rates", "no.yaml"), r"no\.yaml: no such file"),
    Bad("paper/runs-damaged", "a report from damaged results", ("paper", "main", "--out", "out", "--runs", "runs"), r"runs", runs_folder("{")),
]  # fmt: skip
