"""Every notebook of the repository runs from its first cell to its last, and leaves its result behind."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.jupyter_home import jupyter_environment
from tests.support.repository import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SECONDS_PER_CELL = 180
MOST_LETTERS = 600_000
"""Of an executed notebook, with the results of all its cells."""

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def executed(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The notebook named by the parameter after a run in a folder and a kernel of its own."""
    source: Path = request.param
    copy = tmp_path / source.name
    shutil.copyfile(source, copy)
    notebook = nbformat.read(copy, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=SECONDS_PER_CELL,
        kernel_name="python3",
        store_widget_state=False,
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute(env=jupyter_environment(tmp_path / "jupyter"))
    return notebook


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def pictures(cell: Any) -> list[str]:
    """The HTML outputs of a cell."""
    return [output["data"]["text/html"] for output in cell.outputs if "text/html" in output.get("data", {})]


@pytest.mark.parametrize("executed", NOTEBOOKS, ids=lambda path: path.stem, indirect=True)
def test_it_runs_and_keeps_its_diagnosis(executed: Any) -> None:
    for cell in code_cells(executed):
        said = [output for output in cell.outputs if output.output_type == "error" or output.get("name") == "stderr"]
        assert not said, f"{cell.source}\n{said}"
    doctored = [cell for cell in code_cells(executed) if cell.source.startswith("%%gpudoctor")]
    assert doctored, "a notebook of ours shows the doctor at work"
    for cell in doctored:
        assert any("gpu-doctor-static" in html for html in pictures(cell))
    assert "widgets" not in executed.metadata, "GitHub calls a notebook with half of a widget's state invalid"
    assert len(nbformat.writes(executed)) < MOST_LETTERS
    nbformat.validate(executed)
