"""What the tests of fixed places share."""

from __future__ import annotations

from tests.support.patched_cells import LOOP

ZIPPED = "a, b = DataLoader(ds, 16), DataLoader(val_ds, batch_size=4)\nc = DataLoader(val_ds, 2)\n" + LOOP.replace(
    "for x in loader", "for x, y in zip(a, b)"
)
