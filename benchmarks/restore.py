"""Restore proof as a table: a digest of everything reachable before and after trials of many kinds of cells.

`python -m benchmarks.restore` tries every notebook of tests/support/cells with five endings (normal, raised,
out of memory, stopped, interrupted) and prints the digest before and after each. The digest is that of
tests/support/everything.py, which knows nothing of the snapshot.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

from tests.support.cells import CELLS, ended, notebook
from tests.support.restoring import ENDINGS, tried


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", type=int, help="so many kinds of cells only")
    options = parser.parse_args()
    torch.set_num_threads(1)
    equal = total = 0
    for name, kind in [(name, cell) for name, cell in CELLS.items() if cell.restored][: options.kinds]:
        for ending in ENDINGS:
            with tempfile.TemporaryDirectory() as folder:
                space = notebook(kind, Path(folder))
                before, after, outcome = tried(kind, ending, space)
                ended(space)
            total, equal = total + 1, equal + (before.digest == after.digest)
            same = "equal" if before.digest == after.digest else "DIFFER"
            print(f"{name[:58]:<60}{outcome:<16}{before.digest[:12]} {after.digest[:12]} {same}")
    print(f"{equal} of {total} trials left everything as it was")


if __name__ == "__main__":
    main()
