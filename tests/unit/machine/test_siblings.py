"""How many cores stand behind the logical ones."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gpu_doctor.machine.host import physical_cores


def machine(folder: Path, siblings: list[str]) -> Path:
    """A folder as Linux describes its processors in: for each the threads of its core."""
    for number, one in enumerate(siblings):
        (folder / f"cpu{number}" / "topology").mkdir(parents=True)
        (folder / f"cpu{number}" / "topology" / "thread_siblings_list").write_text(one + "\n")
    return folder


def test_two_threads_of_a_core_are_one_core(tmp_path: Path) -> None:
    root = machine(tmp_path, ["0,2", "1,3", "0,2", "1,3"])
    assert physical_cores(range(4), root) == 2
    assert physical_cores([0, 2], root) == 1
    assert physical_cores([0, 1], root) == 2  # one thread of each
    assert physical_cores([0, 7], root) is None  # not described: not known


@pytest.mark.skipif(sys.platform != "linux", reason="Linux describes its processors in /sys")
def test_this_machine_tells_its_cores() -> None:
    found = physical_cores()
    assert found is not None and 1 <= found <= len(os.sched_getaffinity(0))
