"""A snapshot of a hundred megabytes and of long lists is taken and put back within seconds."""

from __future__ import annotations

import copy
import time
from typing import Any, Final

from torch import nn

from gpu_doctor.trials.snapshot.snapshot import Snapshot

COPIES: Final = 3.0
"""All is copied once when it is taken and once when it is put back; the walk over it may cost a third copy."""


def test_fast_enough() -> None:
    """By CPU seconds, against a deep copy of the same."""
    space: dict[str, Any] = {
        "net": nn.Sequential(*[nn.Linear(1000, 1000) for _ in range(25)]),
        "numbers": [float(i) for i in range(100_000)],
        "pairs": [(f"{i}.png", i) for i in range(100_000)],
    }
    begin = time.process_time()
    copied = copy.deepcopy(space)
    copy_s, begin = time.process_time() - begin, time.process_time()
    snapshot = Snapshot.take(space)
    snapshot.restore()
    took_s = time.process_time() - begin
    assert snapshot.bytes > 100_000_000 and copied["numbers"] == space["numbers"]
    assert took_s < COPIES * copy_s
