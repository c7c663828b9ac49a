"""Refuses files that should not be committed as they are: large ones, and notebooks that were not run to their end.

`python .ci/check_files.py PATH ...` prints one line for each trouble and then exits with 1.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support import stored_notebooks

MOST_BYTES: Final = 2_000_000
"""A clone carries every version of a file for ever; the README's moving picture may be so large."""


def complaints(paths: Iterable[Path]) -> list[str]:
    """What is wrong with these files, one line each."""
    found = []
    for path in paths:
        if not path.is_file() or path.is_symlink():
            continue
        size = path.stat().st_size
        if path.suffix == ".ipynb":
            said = stored_notebooks.complaints(path.read_text(encoding="utf-8"))
            found += [f"{path}: {one} Run: make course" for one in said]
        elif size > MOST_BYTES:
            found.append(f"{path}: {size / 1000:.0f} KB. Make it smaller than {MOST_BYTES // 1000} KB or leave it out.")
    return found


if __name__ == "__main__":
    found = complaints(map(Path, sys.argv[1:]))
    sys.stderr.writelines(f"{one}\n" for one in found)
    sys.exit(bool(found))
