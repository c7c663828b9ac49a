"""The threads of workers as code: the fixed cell is run for real, and its workers say what they compute with."""

from __future__ import annotations

from typing import Any

import gpu_doctor
from tests.support.patched_cells import LOOP, PRELUDE, fixed


def test_opencv_is_told_where_the_cells_use_it_and_names_are_not_taken() -> None:
    cell = (
        "try:\n    import cv2 as cv\nexcept ImportError:\n    cv = None\nworker_threads = 3\nprint(worker_threads)\n"
        "loader = DataLoader(ds, 16, num_workers=worker_threads)\n"
    )
    fix, cells = fixed([cell + LOOP], {"worker_threads": 1})
    assert "def set_worker_threads(worker):" in cells[0] and "    cv.setNumThreads(0)\n" in cells[0]
    assert "num_workers=worker_threads, worker_init_fn=set_worker_threads)" in cells[0] and fix.complete


def test_a_worker_init_fn_of_ones_own_is_named() -> None:
    cell = "def mine(worker):\n    pass\nloader = DataLoader(ds, 16, num_workers=1, worker_init_fn=mine)\n"
    fix, cells = fixed([cell + LOOP], {"worker_threads": 1})
    assert not fix.complete and cells == [cell + LOOP]
    (note,) = fix.notes
    assert note.startswith("Line 3 of this cell passes a worker_init_fn")
    assert "torch.set_num_threads(1)" in fix.paste


TELLING = """class Telling(Rows):
    def __getitem__(self, i):
        return torch.full((4,), float(torch.get_num_threads()))
loader = DataLoader(
    Telling(),
    batch_size=16,  # rows
    num_workers=1
)
"""


READ = LOOP.replace("    loss = net", "    threads = x[0, 0].item()\n    loss = net")


def test_a_worker_init_fn_is_written_before_the_loader_and_handed_to_it() -> None:
    fix, cells = fixed([TELLING, READ], {"worker_threads": 2})
    assert fix.complete, str(fix)
    assert cells[0].startswith("def worker_threads(worker):\n    import torch\n    torch.set_num_threads(2)\n\nclass")
    assert "    num_workers=1,\n    worker_init_fn=worker_threads,\n)" in cells[0] and "# rows" in cells[0]
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(PRELUDE + cells[0], namespace)
    gpu_doctor.case(cells[1], namespace).run()
    assert namespace["threads"] == 2.0
