"""Bare timing: a program without gpu_doctor, by the clock.

Each bare run has a namespace of its own; torch's optimizer hook notes when a step ended. The seconds of a step are
taken from there, without the first fifth of the steps (start of workers, first launches) and without those at the end
for which batches lay ready: that is what samples per second after warm-up means. Sick and cured runs alternate, and the
gain is the median of the pairs, of which there are as many as it takes to know it.
"""

from __future__ import annotations

import gc
import math
import re
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from tools.evaluate.program import Timed

ROUNDS: Final = 3
MOST_ROUNDS: Final = 9
SURE: Final = 0.03
"""Pairs are added to `ROUNDS` until the gain is known so well: half the distance of the quartiles of the pairs' gains
over the square root of their number, relative to the median. A virtual machine may change its speed by 1.6 within a
minute, and a gain that is not known to a few percent cannot tell whether a forecast lies within 20 % of it."""
MOST_LEADING: Final = 0.2
FEWEST_LEADING: Final = 3
"""Leading steps that are not timed: a fifth, at least three."""
FEWEST_TIMED: Final = 6

PREFETCH: Final = 2
"""Batches that each of torch's workers fetches ahead by default."""
LONGER: Final = 5
"""The factor by which a cured loop is lengthened if it is many times as fast."""


def bare_s(above: str, cell: str, timed: Timed = "steps") -> float:
    """Runs the bare cells and returns the seconds of a step; of all that follows the first step if timed as a `whole`.

    A program without an optimizer is timed as a whole from its first forward on.

    Raises:
        RuntimeError: if the cell made too few steps to time.
    """
    ends: list[float] = []
    forwards: list[float] = []
    clock = time.perf_counter

    def begin(*_: object) -> None:
        hooks.pop().remove()
        forwards.append(clock())

    with as_it_was():
        namespace: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(above, "<above>", "exec"), namespace)
        code = compile(cell, "<cell>", "exec")
        hooks = [register_optimizer_step_post_hook(lambda *_: ends.append(clock()))]
        if timed == "whole":
            hooks.append(register_module_forward_pre_hook(begin))
        try:
            exec(code, namespace)
            end = clock()
        finally:
            for hook in hooks:
                hook.remove()
            namespace.clear()  # the loop's iterators and their workers end here, not in the next cell's time
    if timed == "whole":
        if not (ends or forwards):
            raise RuntimeError("the program made no step and no forward")
        return end - (ends or forwards)[0]
    lead = 1 if timed == "few" else max(FEWEST_LEADING, int(MOST_LEADING * len(ends)))
    if len(ends) < lead + (2 if timed == "few" else FEWEST_TIMED):
        raise RuntimeError(f"the cell made {len(ends)} steps, too few to time")
    if timed == "tail":
        return (end - ends[lead]) / (len(ends) - 1 - lead)
    last = len(ends) - 1 - min(stock(above + cell), (len(ends) - lead) // 2)
    return (ends[last] - ends[lead]) / (last - lead)


def stock(text: str) -> int:
    """Returns the number of batches that lie ready when the workers have fetched the last one.

    Nobody fetches during these last steps. Their batches were fetched in the leading steps, which are not timed either:
    timing these last ones would make workers look too fast.
    """
    workers = [int(count) for count in re.findall(r"num_workers=(\d+)", text)]
    ahead = [int(count) for count in re.findall(r"prefetch_factor=(\d+)", text)]
    return max(workers, default=0) * max(ahead, default=PREFETCH)


class as_it_was:  # read as a phrase
    """Restores what a program may change in torch and its command line, and frees the memory it leaves behind."""

    def __enter__(self) -> None:
        self.threads, self.anomaly = torch.get_num_threads(), torch.is_anomaly_enabled()
        self.argv, sys.argv = sys.argv, ["program"]
        torch.manual_seed(0)
        gc.collect()

    def __exit__(self, *error: object) -> None:
        sys.argv = self.argv
        torch.set_num_threads(self.threads)
        torch.autograd.set_detect_anomaly(self.anomaly)
        gc.collect()


def known(gains: Sequence[float], rounds: int = ROUNDS) -> bool:
    """Returns True if there are pairs enough: at least `rounds` (one suffices if `rounds` is 1), see `SURE`."""
    if len(gains) < rounds:
        return False
    if rounds < 2 or len(gains) >= MOST_ROUNDS:
        return True
    low, middle, high = statistics.quantiles(gains, n=4, method="inclusive")
    return (high - low) / (2.0 * middle * math.sqrt(len(gains))) <= SURE


def longer(above: str) -> str:
    """Returns the cells above with `LONGER` times the batches or epochs, where a line `LENGTH = ...` or `EPOCHS = ...`
    sets these."""
    return re.sub(
        r"^(LENGTH|EPOCHS) = (\d+)", lambda found: f"{found[1]} = {LONGER * int(found[2])}", above, flags=re.M
    )
