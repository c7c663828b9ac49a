"""What of `tests/unit/.../test_snapshot.py` reads a real clock or runs real threads."""

from __future__ import annotations

import time
from typing import Any

from torch import nn

from gpu_doctor.snapshot import Snapshot


def test_fast_enough() -> None:
    space: dict[str, Any] = {
        "net": nn.Sequential(*[nn.Linear(1000, 1000) for _ in range(25)]),
        "numbers": [float(i) for i in range(100_000)],
        "pairs": [(f"{i}.png", i) for i in range(100_000)],
    }
    begin = time.perf_counter()
    snapshot = Snapshot.take(space)
    snapshot.restore()
    assert snapshot.bytes > 100_000_000
    assert time.perf_counter() - begin < 3.0  # 0.2 s on an idle core
