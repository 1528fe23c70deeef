"""docs/bad-inputs.md: every case of the catalogue, really carried out, and what it got."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from bad_inputs import CASES, GROUPS
from bad_inputs.case import Bad, Outcome
from bad_inputs.world import LEARN, MODEL, QUICK

PAGE = Path(__file__).parents[2] / "docs" / "bad-inputs.md"
LONGEST = 320
HEAD = """# Bad inputs

Every input below ends a command with exit code 2 and one message that names what is wrong. There is no traceback, nothing that was there is changed, and nothing half-written is left. The list is made by `python tools/bad_inputs_page.py`, which carries out every command; [a test](../tests/test_bad_inputs.py) does the same and checks that this page says what tasso says now. [Reliability](reliability.md) has the other promises.

HERE stands for the folder in which the command is given. In commands, … stands for `{learn}`, or those of them that belong to own tasks. Long messages are cut.

There are {count} of them.
"""


def page(outcome_of: Callable[[Bad], tuple[Outcome, Path]]) -> str:
    """The whole page. Cases that root cannot try are listed without an answer."""
    lines = [HEAD.format(learn=" ".join(LEARN), count=len(CASES))]
    for title, cases in GROUPS.items():
        lines += [f"## {title}", "", "| name | input | command | what it got |", "|---|---|---|---|"]
        lines += [row(case, outcome_of) for case in cases]
        lines.append("")
    return "\n".join(lines)


def row(case: Bad, outcome_of: Callable[[Bad], tuple[Outcome, Path]]) -> str:
    if case.only_users:  # the page must be the same whoever makes it
        answer = "(not tried here: nothing is forbidden to root)"
    else:
        outcome, place = outcome_of(case)
        answer = code(said(case, outcome, place))
    return f"| {case.name} | {plain(case.what)} | {code(command(case))} | {answer} |"


def said(case: Bad, outcome: Outcome, place: Path) -> str:
    """The message on one line, without what differs from machine to machine."""
    text = outcome.message.replace(str(place.resolve()), "HERE").replace(str(place), "HERE")
    text = " ".join(text.split())
    if case.varies:
        text = re.sub(case.varies, "…", text)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"


def command(case: Bad) -> str:
    words = list(case.words)
    for usual in (LEARN, (*MODEL, *QUICK), LEARN[:-4]):
        start = next((n for n in range(len(words)) if tuple(words[n : n + len(usual)]) == usual), None)
        if start is not None:
            words[start : start + len(usual)] = ["…"]
            break
    shown = [word if word and re.fullmatch(r"[\w./:=,+*…{}-]+", word) else repr(word) for word in words]
    shown = [word if len(word) <= 60 else f"{word[:57]}…" for word in shown]
    return " ".join(["tasso", *shown])


def code(text: str) -> str:
    """A code span in a table. Characters that nobody sees are named."""
    visible = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text).replace("|", "\\|")
    longest = max((len(run) for run in re.findall("`+", visible)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {visible} {fence}" if longest else f"{fence}{visible}{fence}"


def plain(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
