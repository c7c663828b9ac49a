"""Whether a frozen model is handed rows that it has seen before, and gives the same for them.

Some rows of the first calls are remembered by a few of their numbers. Where samples are drawn without replacement all
of them have come once more before one comes a third time; of samples that are augmented few do, or the few variants of
each come by turns. What comes again must have the same result: with dropout, or with weights that move, it has not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

NUMBERS: Final = 32
"""Of a row of each input, by which it is known again: 15 % of its words masked, or of an image erased, are seen."""
OUTPUTS: Final = 8
"""Of its result."""
KEPT: Final = 64
"""Rows that are remembered."""
FEWEST: Final = 8
ALL: Final = 0.95
"""Of the remembered rows so many must have come again: a last batch that is left out may have had some."""
THIRD: Final = 0.1
"""Once more of them than this have come a third time, the others are not coming as they were."""
STILL: Final = 3.0
"""Passes after which the remembered rows must have come again, to the end: samples may be of use for a while only."""
SHORT: Final = 8.0
"""Calls that a pass counts as, at least."""
ALIKE: Final = 1e-4
ALIKE_HALF: Final = 2e-2
"""Results may differ by so much of the largest one: batches of another size are summed up in another order."""

Rows = list[torch.Tensor]


class _Row:
    """A remembered row: its result, the step in which it last came, and the calls that it came in."""

    __slots__ = ("calls", "output", "step")

    def __init__(self, call: int, step: int, output: npt.NDArray[Any]) -> None:
        self.output, self.step, self.calls = output, step, [call]


class Returning:
    """What became of the rows of one model."""

    def __init__(self) -> None:
        self.over = self.found = False
        """Nothing more is to be looked at; the rows came again, all of them, and so far with the same results."""
        self.period = float("nan")
        """Calls from one pass over the samples to the next."""
        self._rows: dict[bytes, _Row] = {}
        self._learning = True
        self._scale = 0.0
        self._calls = self._last = 0
        """Which call was looked at last, and the last in which a remembered row came again."""

    def still(self, calls: int) -> bool:
        """Whether they came again to the end of so many calls."""
        return self.found and calls - self._last <= STILL * max(self.period, SHORT)

    def add(self, step: int, inputs: Rows, output: torch.Tensor, call: int | None = None) -> None:
        """A call, in the CPU's memory.

        Args:
            step: of the optimizer, in which it was.
            inputs: as `rows_of` gives them.
            output: the same of the result.
            call: which one it is; None = the next.
        """
        names = _names(inputs)
        self._calls = self._calls + 1 if call is None else call
        learning = self._learning and len(self._rows) < KEPT
        if not learning and self._rows.keys().isdisjoint(names):
            return
        results = output.float().numpy()
        self._scale = max(self._scale, float(np.abs(results).max(initial=0.0)))
        alike = self._scale * (ALIKE_HALF if output.element_size() < 4 else ALIKE)
        for name, result in zip(names, results, strict=True):
            known = self._rows.get(name)
            if known is not None and known.step != step:
                known.step, self._learning, self._last = step, False, self._calls
                if not np.all(np.abs(known.output - result) <= alike):
                    self.over, self.found = True, False
                    return
                if not self.found:
                    known.calls.append(self._calls)
        if learning and self._learning:
            self._remember(step, names, results)
        if not self.found:
            self._judge()

    def _remember(self, step: int, names: list[bytes], results: npt.NDArray[Any]) -> None:
        """Rows that are one of a kind in their batch: blank ones tell nothing."""
        once = Counter(names)
        for name, result in zip(names, results, strict=True):
            if once[name] == 1 and len(self._rows) < KEPT:
                self._rows.setdefault(name, _Row(self._calls, step, result))

    def _judge(self) -> None:
        rows = self._rows.values()
        again = [one for one in rows if len(one.calls) > 1]
        third = sum(len(one.calls) > 2 for one in rows)
        if len(rows) < FEWEST or not again:
            return
        if len(again) >= ALL * len(rows):
            gaps = [one.calls[1] - one.calls[0] for one in again]
            # In an order that is drawn anew they come again in the middle of the second pass, on average.
            middle = sum(one.calls[1] for one in again) / len(again) / 1.5
            self.period = float(gaps[0]) if max(gaps) - min(gaps) <= 1 else max(middle, 1.0)
            self.found = True
        elif third > max(THIRD * len(rows), 1.0):
            self.over = True


def rows_of(one: torch.Tensor, most: int) -> torch.Tensor | None:
    """Some numbers of each row of a tensor, copied where it lies; None where its memory is in no order of rows."""
    if one.layout is not torch.strided or one.is_nested or not one.dim():
        return None
    count = one.shape[0]
    size = one.numel() // max(count, 1)
    if not size or not (one[0].is_contiguous() or (one.dim() == 4 and _channels_last(one))):
        return None
    taken = min(most, size)
    try:
        return one.detach().as_strided((count, taken), (one.stride(0), size // taken)).clone()
    except (RuntimeError, TypeError):  # a kind of tensor that is stored otherwise
        return None


def weights_of(module: torch.nn.Module) -> list[torch.Tensor]:
    """Some numbers of some of a module's weights, copied where they lie: whether they change."""
    found = list(module.parameters())
    some = found[:: max(len(found) // 16, 1)] + found[-1:]
    taken = [(one.detach(), min(NUMBERS, one.numel())) for one in some]
    return [one.as_strided((count,), (one.numel() // count,)).clone() for one, count in taken if count]


def same(before: Sequence[torch.Tensor], now: Sequence[torch.Tensor]) -> bool:
    """Whether none of the weights has changed; waits for a device that they lie on."""
    return len(before) == len(now) and all(torch.equal(a, b) for a, b in zip(before, now, strict=True))


def _channels_last(one: torch.Tensor) -> bool:
    return one.is_contiguous(memory_format=torch.channels_last)


def _names(inputs: Rows) -> list[bytes]:
    """Of each row the bytes of its numbers, all inputs together."""
    parts = []
    for one in inputs:
        raw = one.view(torch.uint8).numpy()
        parts.append(np.ascontiguousarray(raw).view(f"V{raw.shape[1]}")[:, 0].tolist())
    return parts[0] if len(parts) == 1 else [b"".join(row) for row in zip(*parts, strict=True)]
