"""Whether a frozen model is handed rows that it has seen before, and gives the same results for them.

64 rows of its first calls are remembered by a few of their numbers, and it is counted how often each comes. Samples
that each epoch goes through once come equally often, to the end of the run; of samples that are augmented few come
again, or some more often than others. A row that comes again must have the same result: with dropout it has not.
"""

from __future__ import annotations

from collections import Counter
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
RARE: Final = 0.05
"""Part of the remembered rows that may come less often: a last batch that is left out may have had some."""
EVENLY: Final = 0.75
"""The others come at least so often as the most frequent one, but for the pass that goes on. Samples that are flipped
in half of the passes, or drawn with replacement, do not."""
STILL: Final = 1.5
"""Passes since a remembered row came last, at most: new samples may have taken the place of the first ones."""
ALIKE: Final = 1e-4
ALIKE_HALF: Final = 2e-2
"""Results may differ by so much of the largest one that is remembered: batches of another size are summed up in another
order."""

Rows = list[torch.Tensor]
"""Some numbers of each row, one tensor an input."""


class _Row:
    """A remembered row: its result, the step in which it last came, and how often it came."""

    __slots__ = ("output", "step", "times")

    def __init__(self, step: int, output: npt.NDArray[Any]) -> None:
        self.output, self.step, self.times = output, step, 1


class Returning:
    """What became of the rows of one model."""

    def __init__(self) -> None:
        """No row is remembered yet."""
        self.calls = self.sure = 0
        """Calls so far, with those that were skipped, and after which of them no row is counted; 0 = all are."""
        self.differs = False
        """A row came again with another result."""
        self._rows: dict[bytes, _Row] = {}
        self._last = 0
        """The last call in which a remembered row came again; 0 = none has."""
        self._scale = 0.0

    def add(self, step: int, inputs: Rows, output: torch.Tensor) -> None:
        """A call, in the CPU's memory.

        Args:
            step: of the optimizer, in which the call was: within one step the same rows tell nothing.
            inputs: as `rows_of` gives them.
            output: the same of the result.
        """
        names = _names(inputs)
        self.calls += 1
        alike = self._scale * (ALIKE_HALF if output.element_size() < 4 else ALIKE)
        for at, name in enumerate(names):
            known = self._rows.get(name)
            if known is not None and known.step != step:
                known.step, known.times, self._last = step, known.times + (not self.sure), self.calls
                other = np.abs(known.output - output[at].float().numpy()) > alike
                self.differs = self.differs or bool(other.any())
        if not self._last and len(self._rows) < KEPT:
            self._learn(step, names, output.float().numpy())

    def _learn(self, step: int, names: list[bytes], results: npt.NDArray[Any]) -> None:
        """Remembers rows that are one of a kind in their batch: blank ones tell nothing."""
        self._scale = max(self._scale, float(np.abs(results).max(initial=0.0)))
        once = Counter(names)
        for name, result in zip(names, results, strict=True):
            if once[name] == 1 and len(self._rows) < KEPT:
                self._rows.setdefault(name, _Row(step, result))

    @property
    def passes(self) -> float:
        """How often every sample came, on average; 1 where the same ones do not come again and again."""
        times = sorted(one.times for one in list(self._rows.values()))  # the training thread may add some
        if self.differs or len(times) < FEWEST:
            return 1.0
        evenly = times[int(RARE * len(times))] >= max(2.0, EVENLY * times[-1] - 1.0)
        passes = sum(times) / len(times) * self.calls / (self.sure or self.calls)
        return passes if evenly and (self.calls - self._last) * passes <= STILL * self.calls else 1.0


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


def _channels_last(one: torch.Tensor) -> bool:
    return one.is_contiguous(memory_format=torch.channels_last)


def _names(inputs: Rows) -> list[bytes]:
    """Of each row the bytes of its numbers, all inputs together."""
    parts = []
    for one in inputs:
        raw = one.view(torch.uint8).numpy()
        parts.append(np.ascontiguousarray(raw).view(f"V{raw.shape[1]}")[:, 0].tolist())
    return parts[0] if len(parts) == 1 else [b"".join(row) for row in zip(*parts, strict=True)]
