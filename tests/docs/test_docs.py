"""The documentation is correct: links, commands, options, tables and examples."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import json
import re
import shlex
import statistics
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from fences import code_in
from tasso.cli import main, parse_run_config
from tasso.config import PROTOCOLS, RunConfig, from_dict
from tasso.data import BENCHMARKS, drawn
from tasso.data.benchmarks import MTIL
from tasso.methods import METHODS
from tasso.methods.tasso import Tasso
from tasso.training.engine import planned_steps
from tasso.training.learner import learn
from tasso.training.resolve import resolve

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PROTOCOL, DESIGN, PERFORMANCE = (DOCS / f"{name}.md" for name in ("protocol", "design", "performance"))
ADDING = DOCS / "add-a-method.md"
GUIDE = sorted((DOCS / "guide").glob("*.md"))
METHODS_PAGE = DOCS / "methods" / "index.md"
TASKS_PAGE, RUNNING_PAGE = DOCS / "guide" / "tasks-and-data.md", DOCS / "guide" / "running.md"
README, CONTRIBUTING = ROOT / "README.md", ROOT / "CONTRIBUTING.md"
WRITTEN = sorted(DOCS.rglob("*.md"))
PAGES = [README, CONTRIBUTING, ROOT / "CHANGELOG.md", ROOT / "results" / "README.md", *WRITTEN]


def name_of(page: Path) -> str:
    """Id of a test of this page."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, *languages: str) -> list[str]:
    """Fenced code of these languages."""
    return code_in(page.read_text(encoding="utf-8"), *languages)


def prose(page: Path) -> str:
    """The page without fenced code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def commands(page: Path, *languages: str) -> list[list[str]]:
    """Arguments of every tasso command in the page's shell blocks."""
    joined = "\n".join(blocks(page, *(languages or ("sh",)))).replace("\\\n", " ")
    lines = [shlex.split(line, comments=True) for line in joined.splitlines()]
    return [args[1:] for args in lines if args and args[0] == "tasso"]


def anchors(page: Path) -> set[str]:
    """Anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def rows(page: Path) -> list[list[str]]:
    """Cells of all table rows."""
    lines = [line for line in prose(page).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name_of(page)}: {link}"
        assert target.is_relative_to(ROOT), f"{name_of(page)}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{name_of(page)}: {link}"


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_run_commands_parse(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # the reader's working directory
    by_folder: dict[Path, RunConfig] = {}
    for args in commands(page):
        if args[0] != "run" or any(arg.startswith("runs/") and arg.endswith(".yaml") for arg in args):
            continue  # the file is made by `tasso tune`
        config, _ = resolve(parse_run_config("tasso run", args[1:]))
        assert config.benchmark in BENCHMARKS or config.tasks
        assert by_folder.setdefault(config.out, config) == config, f"two different runs into {config.out}"


def test_ablations_have_distinct_labels() -> None:
    labels = [args[args.index("--label") + 1] for args in commands(PROTOCOL) if args[0] == "run"]
    assert len(labels) == len(set(labels)) > 20


def test_other_commands_and_their_flags_exist(capsys: pytest.CaptureFixture[str]) -> None:
    used: dict[str, set[str]] = {}
    for page in PAGES:
        for args in commands(page):
            flags = {arg.split("=")[0] for arg in args if arg.startswith("--")}
            command = " ".join(args[: 2 if args[0] == "data" else 1])
            used[command] = used.get(command, set()) | flags
    used.pop("run")
    assert {"eval", "metrics", "report", "methods"} <= set(used)
    for command, flags in used.items():
        with pytest.raises(SystemExit) as stop:
            main([*command.split(), "--help"])
        assert stop.value.code == 0, command
        existing = set(re.findall(r"--[a-z][a-z-]*", capsys.readouterr().out))
        assert flags <= existing, f"tasso {command}: {sorted(flags - existing)}"


def as_typed(value: Any) -> str:
    """A default as it is typed."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def test_every_option_is_documented_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    documented: dict[str, list[str]] = {}
    for cells in (cells for page in GUIDE for cells in rows(page)):
        if found := re.fullmatch(r"`--([\w.-]+)`", cells[0]):
            documented.setdefault(found[1], []).append(cells[-1])
    options = {f.name: f.default for f in dataclasses.fields(RunConfig) if f.name != "method"}
    for method in METHODS.values():
        options |= {f"method.{f.name}": f.default for f in dataclasses.fields(method)}
    for name, default in options.items():
        cells = documented.pop(name.replace("_", "-"), [])
        assert cells, f"docs/guide: --{name.replace('_', '-')} has no row"
        if default is None:
            assert not any(cell.startswith("`") for cell in cells), f"{name} has no default of its own"
        else:
            assert f"`{as_typed(default)}`" in cells, (
                f"docs/guide: default of {name} is {as_typed(default)}, not {cells}"
            )
    # Options of other commands that are not those of a run.
    own: set[str] = set()
    commands = ("sweep", "paper", "data prepare", "data check", "data pack", "classify", "serve", "export", "merge")
    for command in commands:
        with pytest.raises(SystemExit):
            main([*command.split(), "--help"])
        own |= set(re.findall(r"--([a-z][a-z-]*)", capsys.readouterr().out))
    own -= {prefix + name.replace("_", "-") for name in options for prefix in ("", "no-")} | {"help"}
    assert set(documented) == own | {"config", "method"}


def test_every_difference_between_paper_and_code_is_documented() -> None:
    table = {cells[3]: cells for cells in rows(PROTOCOL) if len(cells) == 6}
    both = {key: (PROTOCOLS["code"][key], PROTOCOLS["paper"][key]) for key in PROTOCOLS["code"]}
    both |= {f"method.{key}": (value, Tasso.protocols["paper"][key]) for key, value in Tasso.protocols["code"].items()}
    for key, values in both.items():
        cells = table[f"`--{key.replace('_', '-')}`"]
        for value, cell in zip(values, cells[4:], strict=True):
            assert cell.startswith(f"`{value}`"), (key, cell)


def test_tables_are_complete() -> None:
    for page, names in ((README, METHODS), (METHODS_PAGE, METHODS), (TASKS_PAGE, BENCHMARKS)):
        assert {f"`{name}`" for name in names} <= {cells[0] for cells in rows(page)}, page.name
    for name, benchmark in BENCHMARKS.items():
        tasks = benchmark.tasks if len(benchmark.tasks) <= 11 else (benchmark.tasks[0], "…", benchmark.tasks[-1])
        assert [f"`{name}`", ", ".join(tasks)] in [cells[:2] for cells in rows(TASKS_PAGE)], name
    assert f"{drawn.PER_CLASS['train']} training and {drawn.PER_CLASS['test']} test images" in prose(TASKS_PAGE)
    assert f"{drawn.REFERENCE_IMAGES} reference images" in prose(TASKS_PAGE)


def test_the_design_names_every_module() -> None:
    modules = {path.stem for path in (ROOT / "src" / "tasso").glob("[a-z]*.py")}
    modules |= {f"{path.name}/" for path in (ROOT / "src" / "tasso").glob("[a-z]*/")}
    in_tables = {name for cells in rows(DESIGN) for name in re.findall(r"`([\w/]+)`", cells[0])}
    assert not modules - in_tables


def test_the_two_commands() -> None:
    text = README.read_text(encoding="utf-8")
    targets = set(re.findall(r"\bmake ([a-z]+)", text))
    assert targets == {"demo", "test"}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in targets | set(re.findall(r"^make ([a-z]+)", CONTRIBUTING.read_text(encoding="utf-8"), re.M)):
        assert re.search(rf"^{target}:", makefile, re.M), f"make {target}"


def test_readme_is_short_and_cites_what_the_citation_file_names() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    paper, software = citation["preferred-citation"], citation["version"]
    authors = " and ".join(f"{author['family-names']}, {author['given-names']}" for author in paper["authors"])
    entries = "\n".join(blocks(README, "bibtex"))
    plain = entries.replace("{", "").replace("}", "")
    for part in (paper["title"], paper["journal"], str(paper["year"]), authors, software):
        assert part in plain, part
    assert f"]({paper['url']})" in text
    assert f"]({paper['repository-code']})" in text


def test_python_examples_use_options_that_exist() -> None:
    calls = 0
    for page in (README, *WRITTEN):
        for block in blocks(page, "python"):
            for node in ast.walk(ast.parse(block)):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "tasso.learn":
                    given = {k.arg: k.value for k in node.keywords if k.arg and ast.unparse(k.value)[0] != "("}
                    resolve(from_dict({key: ast.literal_eval(value) for key, value in given.items()}))
                    calls += 1
    assert calls >= 2


# -- the worked example of a method ----------------------------------------------------------------------------


@pytest.fixture
def anchor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example as a module; the table of methods is restored afterwards."""
    file = tmp_path / "anchor.py"
    file.write_text(blocks(ADDING, "python")[0], encoding="utf-8")
    spec = importlib.util.spec_from_file_location("tasso.methods.anchor", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "tasso.methods.anchor", module)
    monkeypatch.setitem(METHODS, "anchor", Tasso)  # so that it is removed again
    spec.loader.exec_module(module)
    return module


def test_worked_example_learns_and_its_own_test_passes(anchor: ModuleType, quick: dict[str, Any]) -> None:
    assert METHODS["anchor"] is anchor.Anchor
    shifts = []
    for stiffness in (0.0, 1e3):
        out = f"{quick['out']}-{stiffness}"
        results = learn(from_dict({**quick, "method": {"name": "anchor", "stiffness": stiffness}, "out": out}))
        assert results["finished"]
        shifts.append(shift(out, quick))
    assert 0 < shifts[1] < shifts[0], "the penalty has no effect"
    names: dict[str, Any] = {}
    exec(blocks(ADDING, "python")[1], names)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert len(tests) == 1
    tests[0]()
    [args] = commands(ADDING, "text")
    _, method = resolve(parse_run_config("tasso run", args[1:]))
    assert method.hyper_parameters() == {"name": "anchor", "stiffness": 0.5}


def shift(out: str, quick: dict[str, Any]) -> float:
    """Squared distance between the weights of a run's last checkpoint and those it started with."""
    from tasso.models.loading import load_clip
    from tasso.training.tensor_files import read_tensors

    before = load_clip(str(quick["model"])).state("visual")
    loaded = read_tensors(sorted((Path(out) / "checkpoints").iterdir())[-1])
    assert loaded is not None
    return sum(float((loaded[0][name] - tensor).square().sum()) for name, tensor in before.items())


def test_results_keys_are_documented(quick: dict[str, Any]) -> None:
    results = learn(from_dict({**quick, "steps": 1}))
    keys = {*results, *results["mtil"], *results["mtil"]["metrics"], *results["per_task"][0], *results["parameters"]}
    text = prose(RUNNING_PAGE)
    assert not [key for key in keys if f"`{key}`" not in text]
    files = {path.name for path in Path(str(quick["out"])).iterdir()}
    layout = "\n".join(blocks(RUNNING_PAGE, "text"))
    assert not [name for name in files if name not in layout]


def test_speeds_in_the_documents_are_those_measured() -> None:
    """Every number in the tables of speeds is in the output of `tasso bench`."""
    measured = json.loads((ROOT / "results" / "bench.json").read_text())
    step, plain, nano = (measured[f"h200-attention-{name}"] for name in ("step", "plain", "nano"))
    images, both = measured["h200-images"], measured["h200-attention-both"]
    rows = measured["h200-kernels-methods"]["rows"]
    one = next(row for row in rows if row["method"] == "tasso")
    slower, more = (both[key] / plain[key] for key in ("seconds_ms", "peak_memory_gib"))
    *_, largest = measured["h200-kernels-other"]["evaluation"]["against_plain"]["rows"]
    now = measured["h200-attention-other"]
    evaluated = round(statistics.mean(now["evaluation"]["images_per_second"]), -1)
    minutes = whole_minutes(step, {"images_per_second": evaluated})
    run, sweep = measured["h200-kernels-run"], measured["h200-kernels-sweep"]["rows"]
    sweep_now = [f"{row['steps_per_second']:.0f}" for row in measured["h200-attention-sweep"]["rows"]] + ["–"]
    kernels, profile = now["single_kernels_us"]["rows"], now["profile"]
    times = {name: [row["ms"] for row in rows if row["method"] == name] for name in ("gift", "moe-adapters")}
    assert next(row for row in rows if row.get("kernels") is False)["ms"] == pytest.approx(46.1, abs=0.05)
    compiled = next(row["ms"] for row in rows if row.get("compile") and row["method"] == "tasso")
    expected = {
        PERFORMANCE: [
            f"| training step, images on the GPU | – | {step['seconds_ms']:.1f} ms |",
            f"| {plain['reference']['seconds_ms']:.1f} ms | {plain['seconds_ms']:.1f} ms |",
            f"| 1 | {plain['times_faster']:.1f} |",
            f"({step['matmul_tflops']:.0f} TFLOP/s in that run) | – | {100 * step['share_of_matmul']:.0f} % |",
            f"| {plain['reference']['peak_memory_gib']:.1f} GiB | {plain['peak_memory_gib']:.1f} GiB |",
            f"| {step['seconds_to_first_step']:.1f} s |",
            f"| {100 * images['share_of_device_rate']:.1f} % of the rate |",
            f"| {evaluated:,.0f} images/s |",
            f"takes {slower:.2f} times as long as TASSO in the same setting, with 128 anchors, and {more:.2f} times "
            f"the memory ({both['seconds_ms']:.1f} and {plain['seconds_ms']:.1f} ms, {both['peak_memory_gib']:.1f} and "
            f"{plain['peak_memory_gib']:.1f} GiB, one machine",
            f"| {minutes:.1f} min |",
            f"| {images['packed_against_exact']:.1f} |",
            f"| nano's step | – | {nano['seconds_ms']:.1f} ms |",
            f"| {run['cold_seconds']:.1f} s, {run['warm_seconds']:.1f} s; warm on another machine "
            f"{min(now['nano_run']['seconds'])} to {max(now['nano_run']['seconds'])} s |",
            *(f"| {row['kernel']} | {row['us']:.0f} | {row['bytes_floor_us']:.0f} |" for row in kernels),
            *(f"| {row['runs']} | {before} | {row['steps_per_second']:.0f} | {last} |"
              for row, before, last in zip(sweep, ("222", "–", "367", "362"), sweep_now, strict=True)),
            *(f"| {row['kernels']} | {row['ms']:.1f} | {row['before_ms']:.1f} |" for row in profile["rows"]),
            f"| together | {profile['busy_ms']:.1f} | {profile['before']['busy_ms']:.1f} |",
            f"| 46.1 ms | 29.6 ms with cuDNN's attention, [which was wrong there](#compiled-code); "
            f"{compiled:.1f} ms without | {one['ms']:.1f} ms, now {step['seconds_ms']:.1f} |",
            f"| images/s in evaluation, ViT-B/16 | {largest['plain']:,} | 12,413 | {largest['kernels']:,}, now "
            f"{evaluated:,.0f} |",
            f"| `moe-adapters` | {times['moe-adapters'][0]:.1f} |",
            f"| `moe-adapters`, compiled | {times['moe-adapters'][1]:.1f} |",
            f"| `gift` | {times['gift'][1]:.1f}, {times['gift'][0]:.1f} |",
        ],
    }  # fmt: skip
    tasso = measured["h200-methods"][0]
    for method in measured["h200-methods"]:
        slower = (method["seconds_ms"] / method["tflop"]) / (tasso["seconds_ms"] / tasso["tflop"])
        figures = f"{method['seconds_ms']:.1f} | {method['tflop']:.2f} | {method['peak_memory_gib']:.1f} | {slower:.2f}"
        expected[PERFORMANCE].append(f"| `{method['method']['name']}` | {figures} |")
    later = measured["h200-methods-later"]
    names = ("`tasso`", "`tasso` without its subspace", "`snd`", "`gift`", "`moe-adapters`", "`tasso` again")
    for name, method in zip(names, later, strict=True):
        slower = (method["seconds_ms"] / method["tflop"]) / (later[0]["seconds_ms"] / later[0]["tflop"])
        expected[PERFORMANCE].append(f"| {name} | {method['seconds_ms']:.1f} | {method['tflop']:.2f} | {slower:.2f} |")
    steps = [f"{method['seconds_ms']:.1f} ms" for method in later[:3]]
    expected[DOCS / "results" / "index.md"] = [
        f"a step takes {steps[0]}, {steps[1]} without the subspace, and {steps[2]} with SnD"
    ]
    for page, figures in expected.items():
        text = page.read_text(encoding="utf-8")
        for figure in figures:
            assert figure in text, f"{page.name}: {figure}"


def time_and_memory(step: dict[str, Any]) -> str:
    """As in the tables."""
    return f"{step['seconds_ms']:.1f} | {step['peak_memory_gib']:.1f}"


def whole_minutes(step: dict[str, Any], evaluation: dict[str, Any]) -> float:
    """The estimate of `tasso bench run`."""
    steps = sum(planned_steps("code", data_set.train, step["batch"][0]) for data_set in MTIL.data_sets)
    tests = (len(MTIL.data_sets) + 1) * sum(data_set.test for data_set in MTIL.data_sets)
    seconds = steps * step["seconds_ms"] / 1e3 + tests / evaluation["images_per_second"]
    return (seconds + step["seconds_to_first_step"]) / 60
