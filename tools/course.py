"""Runs the notebooks and keeps what their cells gave: `make course`, on a machine that does nothing else.

`python -m tools.course [NAME ...]` takes all notebooks, or those whose names begin so (`02 05`). Each runs in a
kernel of its own, in a copy of its folder, and is written back with its results, but for the live panel, which is
nothing without its kernel. One that could not be committed so is left as it was, and it is said why.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from tests.support.jupyter_home import jupyter_environment
from tests.support.repository import ROOT
from tests.support.stored_notebooks import VIEW, complaints

FOLDER: Final = ROOT / "notebooks"
NOTEBOOKS: Final = sorted(FOLDER.glob("*.ipynb"))
SECONDS_PER_CELL: Final = 180


def run(path: Path, probe: str = "") -> Any:
    """A notebook after all of its cells ran.

    Args:
        path: its file, which is only read. probe: code that runs in a cell of its own after each doctored one.

    Raises:
        CellExecutionError: if a cell fails.
    """
    notebook: Any = nbformat.read(path, as_version=4)
    if probe:
        notebook.cells = [one for cell in notebook.cells for one in (cell, *_probes(cell, probe))]
    with tempfile.TemporaryDirectory() as home:
        # What stands beside the notebooks may be read; what their cells write goes with the copy.
        place, jupyter = Path(home) / FOLDER.name, Path(home) / "jupyter"
        jupyter.mkdir()
        shutil.copytree(FOLDER, place, ignore=shutil.ignore_patterns("*.ipynb", "images", ".*"))
        NotebookClient(
            notebook,
            timeout=SECONDS_PER_CELL,
            kernel_name="python3",
            store_widget_state=False,
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": str(place)}},
        ).execute(env=jupyter_environment(jupyter))
    return notebook


def _probes(cell: Any, probe: str) -> list[Any]:
    doctored = cell.cell_type == "code" and cell.source.startswith("%%gpudoctor")
    return [nbformat.v4.new_code_cell(probe)] if doctored else []


def stored(notebook: Any) -> str:
    """The text of its file: the results without live widgets, and without what only this machine's Python is."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if VIEW not in one.get("data", {})]
    notebook.metadata.pop("widgets", None)
    notebook.metadata.language_info = {"name": "python", "pygments_lexer": "ipython3"}  # for its magics
    return f"{str(nbformat.writes(notebook)).rstrip()}\n"


def renewed(path: Path) -> list[str]:
    """Runs a notebook and writes it with its results, unless something is wrong with them.

    Returns:
        What is, one sentence each.
    """
    try:
        text = stored(run(path))
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as failed:
        return [str(failed)]
    found = complaints(text)
    if not found:
        path.write_text(text, encoding="utf-8")
    return found


def main(names: Sequence[str]) -> int:
    """Runs them, each with how long it took and how large it is; 0 if all are as they should be."""
    good = True
    for path in (one for one in NOTEBOOKS if not names or one.name.startswith(tuple(names))):
        begin = time.monotonic()
        found = renewed(path)
        took, size = time.monotonic() - begin, path.stat().st_size
        for said in found or [f"{took:.0f} s, {size / 1000:.0f} kB"]:
            print(f"{path.name}: {said}", flush=True)
        good = good and not found
    return int(not good)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
