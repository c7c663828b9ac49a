"""A number that is a variable of the cell is changed where it is assigned."""

from __future__ import annotations

from tests.support.patched_cells import LOOP, fixed, ran


def test_a_cell_variable() -> None:
    cell = "size: int = 16  # rows\nlr = 1e-1\nloader = DataLoader(ds, size)\n" + LOOP
    fix, after = fixed([cell], {"vary.size": 8, "vary.lr": 0.5})
    assert fix.complete and after[0].startswith("size: int = 8  # rows\nlr = 0.5\nloader")
    loader = ran(after)[1].setup.training_loader
    assert loader is not None and loader.batch_size == 8
