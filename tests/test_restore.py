"""The proof that trials do no harm (`restore_apart.py`), in a process of its own.

It digests everything that can be reached, and in a process that has run thousands of tests before that takes minutes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

APART = Path(__file__).with_name("restore_apart.py")


@pytest.mark.parametrize("which", ["not whatever_is_turned", "whatever_is_turned"])
def test_all_kinds_of_cells_are_left_as_they_were(which: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "--timeout=100", "-k", which, str(APART)]
    done = subprocess.run(command, cwd=APART.parents[1], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
