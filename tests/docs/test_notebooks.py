"""The example notebooks run from top to bottom, with few steps and few images."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import few_images

pytestmark = pytest.mark.slow

nbclient = pytest.importorskip("nbclient", reason="no nbclient here: pip install 'tasso[dev]'")
nbformat = pytest.importorskip("nbformat", reason="no nbformat here: pip install 'tasso[dev]'")

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_notebook_runs(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = {"IPYTHONDIR": str(tmp_path), "TMPDIR": str(tmp_path)}
    for name, value in few_images(TASSO_NOTEBOOK_QUICK="1", **folders).items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.read(file, as_version=4)
    nbformat.validate(notebook)
    assert notebook.cells[0].cell_type == "markdown", "no introduction"
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(code) > 4
    assert sum(bool(cell.outputs) for cell in code) > 2, "hardly any output"


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_no_outputs_are_committed(file: Path) -> None:
    """Outputs depend on the machine and change with every run."""
    code = [cell for cell in nbformat.read(file, as_version=4).cells if cell.cell_type == "code"]
    assert not [cell for cell in code if cell.outputs or cell.execution_count]


def test_there_are_notebooks() -> None:
    assert {"first-run", "own-images", "own-method"} <= {file.stem for file in NOTEBOOKS}
