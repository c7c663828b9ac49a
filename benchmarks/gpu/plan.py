"""Lists the two calls of the proof, their blocks in order, and how long each may take."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

CALL_S: Final = {1: 340.0, 2: 240.0}
"""A call takes no longer, its start and its archive included."""
END_S: Final = 6.0
"""A call keeps so much of its time to write what it leaves."""
AGAIN_S: Final = 100.0
"""The second call has so much for all that failed in the first."""
REHEARSED: Final = 0.6
"""A rehearsal takes so much of each limit."""


@dataclass(frozen=True)
class Block:
    """Describes one process of a call."""

    name: str
    call: int
    seconds: float
    """It takes no more; a call that has less left gives it what is left."""
    where: str
    """Names the module and the function that finds its rows."""
    holds: str

    @property
    def run(self) -> Callable[[Any], None]:
        """Imports the function, which is given a `Stage`."""
        module, _, function = self.where.partition(":")
        found: Callable[[Any], None] = getattr(importlib.import_module(f"benchmarks.gpu.{module}"), function)
        return found


BLOCKS: Final = (
    Block("probe", 1, 45.0, "probe:run", "what CUDA does, where the taps rely on it"),
    Block("notebook", 1, 75.0, "notebook:run", "the quickstart in a kernel, and one trial by a click"),
    Block("clock", 1, 110.0, "clock:run", "exposed wait, copies, gap and busy beside torch.profiler and GPM"),
    Block("trials", 1, 50.0, "trials:run", "trials of known truth"),
    Block("tests", 1, 50.0, "tests:run", "the most telling of tests/gpu"),
    Block(
        "causes", 2, 80.0, "diagnoses:run", "sick loops, one for each GPU rule: is it named, what does its cure gain"
    ),
    Block("frameworks", 2, 40.0, "diagnoses:frameworks", "Trainer, Lightning and timm under watch()"),
    Block("precision", 2, 45.0, "trials:precision", "fp16 and compile, by knob and by hand"),
    Block("restore", 2, 60.0, "tests:restore", "what a trial puts back on a card"),
)
"""What matters most comes first: with little time left, most is known."""


def named(name: str) -> Block:
    """Finds the block of that name."""
    return next(one for one in BLOCKS if one.name == name)
