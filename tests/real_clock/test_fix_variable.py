"""A number that is a variable of the cell is changed where it is assigned."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.support.patched_cells import LOOP, fixed, ran


@pytest.fixture(autouse=True)
def switches() -> Iterator[None]:
    """The tests' own switches are put back."""
    precision, benchmark = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    allow, threads = torch.backends.cudnn.allow_tf32, torch.get_num_threads()
    yield
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = benchmark, allow
    torch.set_num_threads(threads)


def test_a_cell_variable() -> None:
    cell = "size: int = 16  # rows\nlr = 1e-1\nloader = DataLoader(ds, size)\n" + LOOP
    fix, after = fixed([cell], {"vary.size": 8, "vary.lr": 0.5})
    assert fix.complete and after[0].startswith("size: int = 8  # rows\nlr = 0.5\nloader")
    loader = ran(after)[1].setup.training_loader
    assert loader is not None and loader.batch_size == 8
