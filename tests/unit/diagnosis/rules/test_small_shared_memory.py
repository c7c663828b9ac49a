"""small-shared-memory: no more workers are advised than find room."""

from __future__ import annotations

import pytest

from gpu_doctor.diagnosis.forecast.forecast import best_workers
from gpu_doctor.recording.setup import World
from tests.support.recordings import Loop


@pytest.mark.parametrize(("room", "least", "most"), [(8e9, 5, 64), (64e6, 3, 3), (1e6, None, None)])
def test_no_more_workers_than_find_room(room: float, least: int | None, most: int | None) -> None:
    setup = {"world": World(shm_free_bytes=room)}
    best = best_workers(Loop(wait=80.0, fetch_cpu=1.0, batch_bytes=10e6, setup=setup).vitals())
    assert (best is None) is (least is None)
    assert best is None or (least or 0) <= best[0] <= (most or 0)
