"""Refuses files that should not be committed as they are: large ones, and notebooks that hold results.

`python .ci/check_files.py PATH ...` prints one line for each and then exits with 1.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

MOST_BYTES: Final = 600_000
"""A clone carries every version of a file for ever; three times the largest picture of the README."""


def complaints(paths: Iterable[Path]) -> list[str]:
    """What is wrong with these files, one sentence each."""
    found = []
    for path in paths:
        if not path.is_file() or path.is_symlink():
            continue
        size = path.stat().st_size
        if size > MOST_BYTES:
            found.append(f"{path}: {size / 1000:.0f} KB. Make it smaller than {MOST_BYTES // 1000} KB or leave it out.")
        if path.suffix == ".ipynb" and _has_results(path):
            found.append(f"{path}: the notebook holds outputs. Clear all outputs, then save it.")
    return found


def _has_results(path: Path) -> bool:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return any(cell.get("outputs") or cell.get("execution_count") is not None for cell in cells)


if __name__ == "__main__":
    found = complaints(map(Path, sys.argv[1:]))
    sys.stderr.writelines(f"{one}\n" for one in found)
    sys.exit(bool(found))
