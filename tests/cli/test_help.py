"""Help and the errors of the parser, as a stranger sees them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import NoneType
from typing import Any, Literal

import pytest

from tasso.cli import COMMANDS, GROUPS, main, parse_run_config
from tasso.cli.parser import Parser
from tasso.config import alternatives
from tasso.errors import ConfigError
from tasso.experiments.sweep import read_grid
from tasso.experiments.sweep.choose import read_rates

# Options that differ in type, though they mean the same.
ONE_OR_MANY = {"--config", "--jobs"}  # a run takes several files, a sweep one; a bench several numbers


class AskedError(Exception):
    """Carries a command's parser out of it."""


def parsers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Parser]:
    def stop(self: Parser, args: list[str]) -> dict[str, Any]:
        raise AskedError(self)

    monkeypatch.setattr(Parser, "parse", stop)
    monkeypatch.setattr("tasso.cli.run.check_early", lambda program, args: None)  # has a parser of its own
    found = {}
    for name, command in COMMANDS.items():
        with pytest.raises(AskedError) as asked:
            command([])
        found[name] = asked.value.args[0]
    return found


def help_of(command: str, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), *more, "--help"])
    assert stop.value.code == 0
    return capsys.readouterr().out


def message(args: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stop:
        main(args.split())
    assert stop.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("columns", ["80", "200"])
@pytest.mark.parametrize("command", COMMANDS)
def test_help(command: str, columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    text = help_of(command, capsys)
    assert text.startswith(f"usage: tasso {command} ")
    assert max(map(len, text.splitlines())) <= min(int(columns), 100)
    for noise in ("type:", "null", "None", "true,false", "Literal", "<class", "==SUPPRESS==", "positional arguments"):
        assert noise not in text, noise
    for option in re.findall(r"^  (--\S+)", text, re.M):
        assert not re.match(r"--(run|no-no-.*)$", option)


def test_help_shows_choices_defaults_and_groups(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(help_of("run", capsys).split())
    for part in (
        "--method NAME finetune, frozen, gift,", "or package.module:Class [tasso; tasso-both for own tasks]",
        "--method.rank N rank r", "[the same share of the model's width]",
        "--precision {auto,float32,bfloat16,fp8}", "--lr RATE peak learning rate",
            "[auto: 0.0001 with small models such as nano, else 1e-05]", "--overwrite ",
        "--no-check-counts do not refuse", "--method.no-fix-signs", "exact (paper)]", "--betas X,X", "[0.9,0.999]",
        "--tasks NAME=PLACE",
    ):  # fmt: skip
        assert part in text, part
    assert re.search(r"^model:$", help_of("run", capsys), re.M)
    assert "--method.generator {auto,diffusers,folder,atlas,retrieval}" in help_of("run --method gift", capsys)
    assert "[ViT-B-16-quickgelu]" in help_of("bench", capsys)


def without_torch(command: str, *more: str) -> str:
    """What a command prints in a process that can import neither torch nor these packages."""
    refused = dict.fromkeys(("torch", "open_clip", *more))  # None instead of a module is an ImportError
    code = f"import sys; sys.modules.update({refused}); from tasso.cli import main; main(sys.argv[1:])"
    environment = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-c", code, *command.split()], capture_output=True, text=True, env=environment, check=False
    )
    return done.stdout + done.stderr


def test_methods_are_listed_without_torch() -> None:
    cost = "\n  cost      at ViT-B-16-quickgelu: trains 86.27 M (of its own 0.07 M)"
    every, one = without_torch("methods", "numpy"), without_torch("methods tasso", "numpy")
    assert re.search(r"\ntasso +image tower +reference +\+329 MiB +subspace", every)
    assert cost in one
    assert cost not in every
    assert "\nzscl: " not in one
    assert "no method 'zcsl'. Did you mean 'zscl'?" in without_torch("methods zcsl")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("--method zcsl", "method: no method 'zcsl'. Did you mean 'zscl'? There are: "),
        ("--stpes 3", "no option --stpes. Did you mean '--steps'?"),
        ("--method.rnk 3", "no option --method.rnk. Did you mean '--method.rank'?"),
        ("--batch-size 0", "batch_size: must be at least 1, not 0"),
        ("--tasks a=./nowhere", f"task 'a': no such file or folder: {Path.cwd() / 'nowhere'}"),
    ],
)
def test_a_mistake_is_told_without_torch(args: str, said: str) -> None:
    assert said in without_torch(f"run {args}")


def test_commands_are_shown_in_groups_and_without_torch() -> None:
    text = without_torch("--help", "numpy")
    places = [text.index(f"\n{title}:\n") for title in ("learn", "use", "data", "research")]
    assert places == sorted(places)
    assert list(GROUPS) == ["learn", "use", "data", "research"]
    assert all(f"\n  {name} " in text for name in COMMANDS)
    assert max(map(len, text.splitlines())) <= 100


def test_the_first_word_of_several_commands_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    main(["data", "--help"])
    text = capsys.readouterr().out
    assert "data prepare" in text
    assert "classify" not in text


def test_an_option_has_one_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: dict[str, dict[Any, str]] = {}
    for command, parser in parsers(monkeypatch).items():
        for action in parser._actions:
            for name in action.option_strings:
                kind = bool if action.nargs == 0 else getattr(action.type, "keywords", {}).get("kind", list)
                kinds.setdefault(name, {})[frozenset(alternatives(kind)) - {NoneType}] = command
    clashes = {name: found for name, found in kinds.items() if len(found) > 1}
    assert clashes.keys() <= ONE_OR_MANY, clashes


def test_run_is_positional_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    found = parsers(monkeypatch)
    for name in ("extend", "eval", "classify", "serve", "export", "metrics", "report"):
        assert re.match(rf"tasso {name} \[?RUN", str(found[name].usage)), name
    assert not [name for name, parser in found.items() if "--run" in parser._option_string_actions]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("rnu", "no command 'rnu'. Did you mean 'run'? There are: demo, run,"),
        ("xylophone", "no command 'xylophone'. There are: demo,"),
        ("data chek", "data: no command 'chek'. Did you mean 'check'?"),
        ("run --stpes 3", "no option --stpes. Did you mean '--steps'? tasso run --help lists the options"),
        ("run --no-chekc-counts", "Did you mean '--no-check-counts'?"),
        ("run --method.rnk=3", "no option --method.rnk. Did you mean '--method.rank'?"),
        ("run --method zcsl", "no method 'zcsl'. Did you mean 'zscl'? There are: "),
        ("run --method TASSO", "no method 'TASSO'. Did you mean 'tasso'?"),
        ("run --benchmark atlsa", "no benchmark 'atlsa'. Did you mean 'atlas'?"),
        ("run --sequence fod", "no task 'fod'. Did you mean 'food'?"),
        ("run --tasks a=atlas:fod --reference atlas", "atlas has no task 'fod'. Did you mean 'food'?"),
        ("paper man --out x", "no plan 'man'. Did you mean 'main'?"),
        ("data prepare oxfrod-pets --root x", "no data set 'oxfrod-pets'. Did you mean 'oxford-pets'?"),
        ("sweep --out x --set stpes=3", "unknown key 'stpes'. Did you mean 'steps'?"),
        ("sweep --out x --set method.rnk=3", "none of tasso has such an option. Did you mean 'method.rank'?"),
        ("sweep --out x --chose mtil", "no option --chose. Did you mean '--choose'?"),
        ("eval --model ViT-B-61", "open_clip knows no model 'ViT-B-61'. Did you mean 'ViT-B-16'?"),
        ("eval --run x", "no option --run: it is tasso eval [RUN] [options]"),
        (
            "extend x --tasks a=b --steps 2",
            "no option --steps: it is as in RUN. With another value, learn all tasks with",
        ),
        ("extend x --tasks a=b --method.rank=2", "no option --method.rank: it is as in RUN."),
        ("extend x --tasks a=b --stpes 2", "no option --stpes."),
        ("run --overwrite true", "--overwrite: takes no value. Its opposite is --no-overwrite"),
        ("run --no-check-counts=false", "--no-check-counts: takes no value. Its opposite is --check-counts"),
        ("run --lr", "--lr: expected one argument"),
        ("run --seed 1 2", "'2' is one argument too many"),
        ("run --precision int4", "--precision: expected one of auto, float32, bfloat16, fp8, not 'int4'"),
        ("classify", "the following arguments are required: RUN, IMAGE"),
        ("merge a b", "the following arguments are required: --out"),
    ],
)
def test_errors(args: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in message(args, capsys)


def test_unknown_keys_of_a_file_have_a_suggestion(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("stpes: 3\n")
    with pytest.raises(ConfigError, match=r"unknown key 'stpes'\. Did you mean 'steps'\?"):
        parse_run_config("tasso run", ["--config", str(file)])


def test_unknown_keys_and_methods_of_the_files_of_a_sweep_have_a_suggestion(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text("seqences: S1\n")
    with pytest.raises(ConfigError, match=r"unknown key 'seqences'\. Did you mean 'sequences'\?"):
        read_grid(file)
    file.write_text("zcsl: 1e-4\n")
    with pytest.raises(ConfigError, match=r"no method 'zcsl'\. Did you mean 'zscl'\?"):
        read_rates(file)


def test_flags() -> None:
    assert parse_run_config("tasso run", []).check_counts
    assert not parse_run_config("tasso run", ["--no-check-counts"]).check_counts
    config = parse_run_config("tasso run", ["--overwrite", "--method.no-fix-signs"])
    assert config.overwrite
    assert config.method["fix_signs"] is False


def test_a_file_is_overruled_by_either_form_of_a_flag(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("overwrite: true\ncheck_counts: false\n")
    config = parse_run_config("tasso run", ["--no-overwrite", "--check-counts", "--config", str(file)])
    assert (config.overwrite, config.check_counts) == (False, True)


def test_values_have_the_types_that_are_declared() -> None:
    parser = Parser("tasso x")
    parser.option("--rate", float | Literal["auto"] | None, "100 % of it")
    parser.option("--pair", tuple[float, float], "two")
    parser.option("--several", list[str] | None, "some")
    args = ["--rate", "1e-3", "--pair", "0.5,1", "--several", "a", "b", "--several", "c"]
    assert parser.parse(args) == {"rate": 1e-3, "pair": (0.5, 1.0), "several": [["a", "b"], ["c"]]}
    assert parser.parse(["--rate", "auto", "--pair", "[0.5, 1]"])["rate"] == "auto"
    with pytest.raises(ConfigError, match="--rate: expected a number or auto, not 'nan'"):
        parser.parse(["--rate", "nan"])
    with pytest.raises(ConfigError, match="--pair: expected 2 values, not '1'"):
        parser.parse(["--pair", "1"])
    assert "100 % of it" in parser.format_help()
