"""Every table is LaTeX that a real LaTeX takes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from run_results import results
from runs_on_disk import several, write_runs
from tasso.report import cost_table, matrix_table, report_tables, to_latex

HEAD = r"""\documentclass[a4paper,landscape]{article}
\usepackage[margin=1cm]{geometry}
\usepackage{booktabs}
\begin{document}
"""


def test_tables_compile(tmp_path: Path) -> None:
    program = shutil.which("pdflatex")
    if program is None:
        pytest.skip("no pdflatex on this machine (Debian: texlive-latex-base and texlive-latex-recommended)")
    strange = "50% & $x_1$ #{~^}\\ <α> × β − γ… naïve Ångström 猫"
    runs = write_runs(tmp_path / "runs", [*several(seeds=6, orders=2), results(strange, benchmark=strange)])
    first, last = (runs[runs["run"] == runs["run"].iloc[place]] for place in (0, -1))
    tables = [*report_tables(runs).values(), cost_table(first), matrix_table(first, "mtil")]
    tables.append(matrix_table(last, "mcil"))
    (tmp_path / "all.tex").write_text(
        HEAD + "\n\\clearpage\n".join(map(to_latex, tables)) + "\\end{document}\n", encoding="utf-8"
    )
    command = [program, "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "Missing character" not in done.stdout
    pages = (tmp_path / "all.pdf").read_bytes()
    assert pages.startswith(b"%PDF")
    assert f"({len(tables)} pages" in " ".join(done.stdout.split())
