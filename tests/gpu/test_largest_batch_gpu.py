"""The largest batch of a real card: in three probes, within the limit, near the truth, and nothing is left of it.

The card is made small: the allocator refuses what goes beyond a few gigabytes, as a full card does.
GPU: not yet run on one. The cell is tried on the CPU in tests/integration/test_memory_cell.py, the search on a
simulated card in tests/unit/trials/test_largest_batch.py.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import gpu_doctor
from gpu_doctor.trials.case import Case
from gpu_doctor.trials.largest_batch import MOST_PROBES, CardMemory
from gpu_doctor.trials.results import MARGIN, Largest
from tests.support.everything import Everything
from tests.support.memory_cell import CELL, peak_bytes, space

MIB, GIB = 1 << 20, 1 << 30
LIMIT = 4 * GIB
ROUNDING = 96 * MIB
"""Pieces of the allocator, and the batch before."""


class Small(CardMemory):
    """A card of LIMIT bytes."""

    def limit_bytes(self) -> float:
        return float(LIMIT)


@pytest.fixture(autouse=True)
def a_small_card() -> Iterator[None]:
    """The allocator holds LIMIT bytes at most."""
    gc.collect()
    torch.cuda.empty_cache()
    _, total = torch.cuda.mem_get_info()
    if total < 2 * LIMIT:
        pytest.skip("the card is small as it is")
    torch.cuda.set_per_process_memory_fraction(LIMIT / total)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    gc.collect()
    torch.cuda.empty_cache()


def searched(batch: int) -> tuple[Case, dict[str, Any], Largest]:
    """The search after a run with this batch; the state is compared bit for bit around it, but for the weights' sum."""
    names = space("cuda", batch)
    case = gpu_doctor.case(CELL, names)
    try:
        case.run()
    except torch.OutOfMemoryError:
        assert case.recordings[-1].outcome == "out-of-memory"
    gc.collect()
    torch.cuda.empty_cache()
    before, allocated = state(names), torch.cuda.memory_allocated()
    found = case.largest_batch(memory=Small("cuda:0"), seconds=240.0)
    assert state(names) == before
    gc.collect()
    assert torch.cuda.memory_allocated() <= allocated + 16 * MIB
    assert names["loader"].batch_size == batch
    return case, names, found


def state(names: dict[str, Any]) -> list[Any]:
    """What a gigabyte of weights and momenta tells without a digest of it all, and the digest of the rest."""
    tensors = [*names["net"].parameters(), *(v for one in names["opt"].state.values() for v in one.values())]
    sums = [(one.data_ptr(), one.double().sum().item(), one.double().square().sum().item()) for one in tensors]
    return [sums, Everything({"loader": names["loader"]}).digest]


def test_it_is_found_in_three_probes_and_lies_within_the_limit() -> None:
    _, names, found = searched(16)
    assert found.batch_size is not None, found.reason
    assert 1 <= len(found.tried) <= MOST_PROBES
    room = (1.0 - MARGIN) * LIMIT
    assert found.peak_bytes is not None and found.peak_bytes <= room
    # It is near the limit, and its peak is the loop's own: a second copy of the state would be 0.5 GiB more.
    whole = all(peak is not None for _, peak in found.tried)
    assert found.peak_bytes >= (0.85 if whole else 0.6) * room  # pieces may not fit together
    assert found.peak_bytes == pytest.approx(peak_bytes(names, found.batch_size), abs=ROUNDING)
    for size, peak in found.tried:
        assert peak is None or peak == pytest.approx(peak_bytes(names, size), abs=ROUNDING)
    assert found.best_samples_per_s is not None and found.best_batch_size in dict(found.rates)


def test_a_batch_that_did_not_fit_as_written_is_made_smaller() -> None:
    _, names, found = searched(512)
    assert found.batch_size is not None, found.reason
    assert found.batch_size < 512 and len(found.tried) <= MOST_PROBES
    assert found.peak_bytes is not None and found.peak_bytes <= (1.0 - MARGIN) * LIMIT
    assert found.peak_bytes == pytest.approx(peak_bytes(names, found.batch_size), abs=ROUNDING)
