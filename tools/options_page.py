"""Write what the options declare to docs/guide/options.md, their types to config/keywords.py, and what the methods say
of themselves to cli/methods.json: `python tools/options_page.py`."""

from __future__ import annotations

import dataclasses
import json
import typing
from pathlib import Path
from typing import Any

from tasso.cli.methods import METHOD_FACTS
from tasso.cli.options import shown_default, unset_default
from tasso.config import DEFAULT_METHOD, OWN_TASKS_METHOD, SCOPES, RunConfig, alternatives, choices_of, options_of
from tasso.methods import METHODS
from tasso.methods.defaults import shown_defaults
from tasso.methods.describe import describe

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "guide" / "options.md"
KEYWORDS = ROOT / "src" / "tasso" / "config" / "keywords.py"
KEYWORDS_HEAD = '''"""Options of a run as keywords, for editors: written by `python tools/options_page.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from tasso.config.run import EvaluatedSplit, HeadName, OptimizerName, Protocol, StepRule, Tracker

if TYPE_CHECKING:
    from torch import nn

# A model, its tokenizer and its preprocessing, as open_clip or transformers make them.
ModelObject: TypeAlias = "tuple[nn.Module, Callable[..., Any], Any]"


class RunOptions(TypedDict, total=False):
    """Options of `tasso run`: what `RunConfig` declares, and what is converted to it."""

'''
# What may be given instead of what a RunConfig holds.
WIDER = {
    "tasks": "Mapping[str, Any] | Sequence[str] | Sequence[Mapping[str, Any]] | None",
    "method": "str | Mapping[str, Any]",
    "model": "str | ModelObject",
}
COMMANDS = {
    "eval": "eval", "merge": "merge --sweep", "extend": "extend", "sweep": "sweep", "paper": "paper",
    "check": "data check", "pack": "data pack", "bench": "bench", "export": "export", "classify": "classify",
    "serve": "serve",
}  # fmt: skip

HEAD = """# Options

These are the options of `tasso run`; other commands [take some of them](#other-commands). \
An option that is true or false takes no value: `--overwrite` sets it, `--no-overwrite` unsets it; \
`--method.no-fix-signs` for those of a method. \
`tasso run --help` prints this list, with the options of the method that `--method` names. \
This page is written by `python tools/options_page.py` from the declarations in the code.
"""
NOTES = {
    "data": "How tasks are written: [your own images](own-images.md). What packs are: "
    "[packing images](tasks-and-data.md#packing-images).",
    "method": "Where the authors' code and the paper's text differ: [protocol](../protocol.md). "
    "Hyper-parameters are in a section per method below.",
    "output": "What the run folder holds, and how to use a tracker: [running](running.md#trackers).",
    "tasso": "What each of them does to the objective is in [protocol](../protocol.md).",
}
EXTRA_ROWS = {
    "method": f"| `--method` | which method | {', '.join(METHODS)} "
    f"| `{DEFAULT_METHOD}`; `{OWN_TASKS_METHOD}` for own tasks |",
    "output": "| `--config` | YAML file with options; repeatable, later files win | a path | none |",
}
TABLE = "| option | meaning | values | default |\n|---|---|---|---|"
TAIL = """## YAML files

Keys are the options with underscores. What is true or false is `true` or `false`; `on`, `off`, `yes` and `no` are \
words, as in YAML 1.2. The method is a name, or a mapping of name and options:

```yaml
benchmark: mtil-mini
sequence: S1
steps: 300
lr: 1e-4
method:
  name: tasso
  rank: 72
```

Options on the command line win over files, wherever they stand. If the command line names another method than the \
file, the file's options of that method are dropped. A run's own `config.yaml` can be given to \
`--config`; look at its `out` first.

```sh
tasso run --config examples/mtil-mini-nano.yaml --data-root DATA --method finetune --out runs/mini-finetune
```
"""
KINDS = {int: "a whole number", float: "a number", bool: "flag", Path: "a path", str: "text", list: "several"}


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for scope in SCOPES:
        rows = rows_of(RunConfig, options_of(RunConfig, scope=scope).keys() - {"method"})
        parts += section(scope.capitalize(), NOTES.get(scope, ""), [*rows, *filter(None, [EXTRA_ROWS.get(scope)])])
    for name, cls in METHODS.items():
        given = "; ".join(f"`{flag(key)}` {text}" for key, text in shown_defaults(cls).items())
        notes = " ".join([*filter(None, [NOTES.get(name)]), f"Unless you give others, it uses {given}."])
        parts += section(f"Method `{name}`", notes, rows_of(cls, options_of(cls).keys(), "method."))
    return "\n".join([*parts, resume(), other_commands(), TAIL])


def section(title: str, notes: str, rows: list[str]) -> list[str]:
    """A heading, a note where there is one, and a table of the options where there are any."""
    return [f"## {title}\n", *([f"{notes}\n"] if notes else []), *([TABLE, *rows, ""] if rows else [])]


def rows_of(owner: type, names: typing.Collection[str], prefix: str = "") -> list[str]:
    """A row per option, in the order of the code."""
    hints, options = typing.get_type_hints(owner), options_of(owner)
    rows = []
    for field in dataclasses.fields(owner):
        if field.name in names:
            option = options[field.name]
            cells = [f"`{flag(prefix + field.name)}`", option.help, values(hints[field.name], option.range)]
            rows.append(f"| {' | '.join([*cells, default_of(owner, field)])} |")
    return rows


def flag(name: str) -> str:
    """The option as it is typed."""
    return f"--{name.replace('_', '-')}"


def values(hint: Any, range: str) -> str:
    """Choices, or what kind of value, and its range."""
    choices = ", ".join(f"`{choice}`" for choice in choices_of(hint))
    kinds = [part for part in alternatives(hint) if part in KINDS or typing.get_origin(part) in (list, tuple)]
    if not kinds:
        return choices
    origin = typing.get_origin(kinds[0])
    kind = "two numbers" if origin is tuple else KINDS[origin or kinds[0]]
    return ", ".join(filter(None, [kind, range, choices and f"or {choices}"]))


def default_of(owner: type, field: dataclasses.Field[Any]) -> str:
    """The default, or what holds where there is none."""
    if field.default is not None:
        return f"`{shown_default(field.default)}`"
    return unset_default(owner, field) or "none"


def resume() -> str:
    """What may change when a run is resumed."""
    return (
        "## Resuming\n\nAll options together say which run it is: a run folder is only resumed with the same ones. "
        f"These may change: {flags(options_of(RunConfig, identity=False))}.\n"
    )


def other_commands() -> str:
    """A row per command that takes options of a run: these, or all but those."""
    lines = ["## Other commands", "", "`tasso eval RUN` takes what you leave out from that run.", ""]
    lines += ["| command | options of a run |", "|---|---|"]
    for command, title in COMMANDS.items():
        taken = options_of(RunConfig, command=command)
        others = [name for name in options_of(RunConfig) if name not in taken]
        shown = flags(taken) if len(taken) <= len(others) else f"all but {flags(others)}"
        lines.append(f"| `tasso {title}` | {shown} |")
    return "\n".join([*lines, ""])


def flags(names: typing.Iterable[str]) -> str:
    """Options in a sentence."""
    return ", ".join(f"`{flag(name)}`" for name in names)


def keywords() -> str:
    """The module with the types of all options; a path may be text."""
    lines = [
        f"    {field.name}: {WIDER.get(field.name) or str(field.type).replace('Path', 'str | Path')}\n"
        for field in dataclasses.fields(RunConfig)
    ]
    return KEYWORDS_HEAD + "".join(lines).replace("'", '"')


def facts() -> str:
    """What `tasso methods --json` prints."""
    return json.dumps({name: describe(name) for name in METHODS}, indent=1) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    KEYWORDS.write_text(keywords(), encoding="utf-8")
    METHOD_FACTS.write_text(facts(), encoding="utf-8")
