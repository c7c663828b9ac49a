"""The threads of workers as code: the fixed cell is run for real, and its workers say what they compute with."""

from __future__ import annotations

from tests.support.patched_cells import LOOP, fixed


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
    assert fix.notes == ("Line 3 of this cell passes a worker_init_fn already: set the workers' threads in it.",)
    assert "torch.set_num_threads(1)" in fix.paste
