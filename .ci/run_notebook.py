"""Runs a notebook as a user would and fails if a cell fails or the doctor shows nothing.

`python run_notebook.py NOTEBOOK` runs it in the working folder, from its first cell to its last, with the packages of
this Python. The release check calls it in an environment that holds the built wheel and nothing of the checkout.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import nbformat
from nbclient import NotebookClient

SECONDS_PER_CELL: Final = 180
RESULT: Final = "gpu-doctor-static"
"""The class of what stays in a saved notebook below a doctored cell."""


def complaints(cells: list[Any]) -> list[str]:
    """What is wrong with the outputs of executed code cells, one sentence each."""
    found = []
    doctored = 0
    for number, cell in enumerate(cells, 1):
        for output in cell.outputs:
            if output.output_type == "error":
                found.append(f"code cell {number} ended with {output.ename}: {output.evalue}")
            elif output.get("name") == "stderr":
                found.append(f"code cell {number} wrote to stderr: {output.text.strip()}")
        if cell.source.startswith("%%gpudoctor"):
            doctored += 1
            pages = [output.get("data", {}).get("text/html", "") for output in cell.outputs]
            if not any(RESULT in page for page in pages):
                found.append(f"code cell {number} is doctored and shows no result ({RESULT})")
    if not doctored:
        found.append("no cell begins with %%gpudoctor")
    return found


def main(path: Path) -> int:
    """Runs the notebook; 1 if anything is wrong with it."""
    read: Any = nbformat.read  # has no types
    notebook = read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=SECONDS_PER_CELL,
        kernel_name="python3",
        store_widget_state=False,  # the result stays in an output of its own
        allow_errors=True,  # what the cells after a failed one say helps to understand it
        resources={"metadata": {"path": str(Path.cwd())}},
    )
    client.execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    found = complaints(cells)
    sys.stderr.writelines(f"{path.name}: {one}\n" for one in found)
    if not found:
        sys.stdout.write(f"{path.name}: {len(cells)} code cells ran, no error, the result is there\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
