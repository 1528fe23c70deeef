"""Write a `Table` as Markdown, CSV, LaTeX or a terminal table."""

from __future__ import annotations

import csv
import io
import re
from typing import Literal, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from tasso.report.tables import SIGNIFICANT, Cell, Column, Table

_GAP = 2  # letters between two columns of the terminal
_ARROWS = {"up": "↑", "down": "↓", None: ""}
_LATEX_ARROWS = {"up": r" $\uparrow$", "down": r" $\downarrow$", None: ""}


def heading(column: Column) -> str:
    """The column's name, with an arrow that points to the better side."""
    return f"{column.name} {_ARROWS[column.better]}".rstrip()


def to_markdown(table: Table) -> str:
    """A Markdown table: best values bold, runners-up underlined, cells of just-learned tasks in italics."""
    table = table.shown()

    def write(cell: Cell) -> str:
        text = _markdown_text(cell.main)
        text = f"**{text}**" if cell.best else f"*{text}*" if cell.learned else text
        text = f"<u>{text}</u>" if cell.second else text
        text = text if cell.spread is None else f"{text} ± {cell.spread_text}"
        return f"{text} {SIGNIFICANT}" if cell.significant else text

    lines = [f"**{_markdown_text(table.title)}**", ""]
    lines.append("| " + " | ".join(_markdown_text(heading(column)) for column in table.columns) + " |")
    lines.append("|" + "|".join("---:" if column.numeric else ":---" for column in table.columns) + "|")
    lines += ["| " + " | ".join(write(cell) for cell in row.cells) + " |" for row in table.rows]
    for note in table.notes:
        lines += ["", _markdown_text(note)]
    return "\n".join(lines) + "\n"


def _markdown_text(text: str) -> str:
    text = re.sub(r"\s+", " ", text)
    # Only characters that can start markup inside a line, so that "(n - 1)" and "61.2" stay readable.
    return re.sub(r"[\\`*_|<>\[\]&~$]", r"\\\g<0>", text)


def to_csv(table: Table) -> str:
    """All columns, unrounded to four decimals; each standard deviation and each p has a column of its own."""

    def has(name: str) -> list[bool]:
        return [
            any(getattr(row.cells[index], name) is not None for row in table.rows)
            for index in range(len(table.columns))
        ]

    spreads, tests = has("spread"), has("p")
    header: list[str] = []
    for column, has_spread, has_p in zip(table.columns, spreads, tests, strict=True):
        name = csv_text(column.name)
        header += [name, *[f"{name} std"] * has_spread, *[f"{name} p"] * has_p]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    for row in table.rows:
        line: list[str] = []
        for cell, has_spread, has_p in zip(row.cells, spreads, tests, strict=True):
            line.append(_csv_value(cell.value))
            line += [_csv_value(cell.spread)] * has_spread
            line += [_csv_value(cell.p, 6)] * has_p
        writer.writerow(line)
    return out.getvalue()


def csv_text(text: str) -> str:
    """Text that programs for tables do not take for a formula, as the name of a task may look like one."""
    return f"'{text}" if re.match(r"[=@\t\r]|[+-](?![\d.]*$)", text) else text


def _csv_value(value: str | float | None, digits: int = 4) -> str:
    if value is None:
        return ""
    return (
        csv_text(value)
        if isinstance(value, str)
        else f"{round(value, digits) + 0.0:.{digits}f}".rstrip("0").rstrip(".")
    )


def to_latex(table: Table) -> str:
    r"""A LaTeX table for the booktabs package: best values bold; runners-up underlined.

    In matrices, which have neither, the cells of just-learned tasks are underlined.
    """
    table = table.shown()

    def write(cell: Cell) -> str:
        if not isinstance(cell.value, int | float):
            return "--" if cell.value is None else _latex_text(cell.value)
        # Math mode gives a true minus sign; \mathbf instead of \textbf keeps the sign bold as well.
        number = rf"\mathbf{{{cell.main}}}" if cell.best else cell.main
        number = rf"\underline{{{number}}}" if cell.learned or cell.second else number
        number = number if cell.spread is None else rf"{number} \pm {cell.spread_text}"
        return rf"${number}^{{\dagger}}$" if cell.significant else f"${number}$"

    def line(cells: list[str]) -> str:
        return "    " + " & ".join(cells) + r" \\"

    names = [_latex_text(column.name) + _LATEX_ARROWS[column.better] for column in table.columns]
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{_latex_text(table.title)}}}",
        rf"  \begin{{tabular}}{{{''.join('r' if column.numeric else 'l' for column in table.columns)}}}",
        r"    \toprule",
        line(names),
        r"    \midrule",
    ]
    for row in table.rows:
        lines += [r"    \midrule"] if row.starts_block else []
        lines.append(line([write(cell) for cell in row.cells]))
    lines += [r"    \bottomrule", r"  \end{tabular}"]
    if table.notes:
        lines += ["", r"  \smallskip", rf"  {{\footnotesize {_latex_text(' '.join(table.notes))}\par}}"]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


# The letters that LaTeX knows without further packages end here (Latin with accents).
_LATEX_KNOWS = "\u017f"
_LATEX_ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "–": "--",
    "−": "$-$",
    "×": r"$\times$",
    "†": r"$\dagger$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "γ": r"$\gamma$",
    "λ": r"$\lambda$",
    "τ": r"$\tau$",
    "…": r"\dots{}",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "⊥": r"$\perp$",
    "∥": r"$\parallel$",
} | {character: "\\" + character for character in "&%$#_{}"}


def _latex_text(text: str) -> str:
    text = re.sub(r"\s+", " ", text)
    return "".join(_LATEX_ESCAPES.get(c, c if c <= _LATEX_KNOWS else "?") for c in text)


def print_table(table: Table, file: TextIO | None = None) -> None:
    """Print the table to the terminal."""
    table = table.shown()
    console = Console(file=file)
    whole = [max(map(len, texts)) for texts in _column_texts(table)]
    narrow = [max(_longest_word(text) for text in texts) for texts in _column_texts(table)]
    room = console.width - _GAP * (len(whole) - 1) if console.is_terminal else sum(whole)
    # In a narrow terminal cells wrap between words; in one narrower still lines wrap, but no column is lost.
    widths = whole if sum(whole) <= room else narrow
    console.width = max(console.width, sum(widths) + _GAP * len(widths))
    console.print(_rich_table(table, widths))
    for note in table.notes:
        console.print(Text(note, style="dim"))


def _column_texts(table: Table) -> list[list[str]]:
    return [
        [heading(column), *(row.cells[index].text for row in table.rows)] for index, column in enumerate(table.columns)
    ]


def _longest_word(text: str) -> int:
    """A number and the ± after it count as one word, so that a narrow cell takes two lines, not three."""
    return max((len(word) for word in text.replace(" ±", "_±").split()), default=0)


def _rich_table(table: Table, widths: list[int]) -> RichTable:
    # Text objects throughout: a name with [brackets] must not be read as rich markup.
    title = Text(table.title)
    out = RichTable(title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for column, width in zip(table.columns, widths, strict=True):
        justify: Literal["left", "right"] = "right" if column.numeric else "left"
        out.add_column(Text(heading(column)), justify=justify, width=width)
    for index, row in enumerate(table.rows):
        styled = [
            Text.assemble(
                (cell.main, "bold" if cell.best else "underline" if cell.learned or cell.second else ""),
                ("" if cell.spread is None else f" ± {cell.spread_text}", "dim"),
                f" {SIGNIFICANT}" if cell.significant else "",
            )
            for cell in row.cells
        ]
        ends_block = index + 1 < len(table.rows) and table.rows[index + 1].starts_block
        out.add_row(*styled, end_section=ends_block)
    return out
