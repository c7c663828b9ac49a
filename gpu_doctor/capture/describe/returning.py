"""Finds out whether a frozen model gets rows that it has seen before, with the same results.

It remembers 64 rows of the first calls by a few of their numbers, and counts how often each returns. Samples that come
once per epoch return equally often, until the end of the run; of augmented samples few return, or some more often than
others. A row that returns must have the same result: with dropout it does not.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

NUMBERS: Final = 32
"""Numbers of each input's row that identify the row: enough to notice 15 % of masked words or erased pixels."""
OUTPUTS: Final = 8
"""Numbers of a row's result that are remembered."""
MOST_ROWS: Final = 64
"""Most rows that are remembered."""
FEWEST: Final = 8
"""Fewest remembered rows for an answer."""
RARE: Final = 0.05
"""Share of the remembered rows that may return less often: a dropped last batch may have contained some."""
EVENLY: Final = 0.75
"""Least frequency of the other rows, as a share of the most frequent one's, apart from the pass that is going on.
Samples that are flipped in half of the passes, or drawn with replacement, return less evenly."""
STILL: Final = 1.5
"""Most passes since a remembered row last returned: later, new samples may have replaced the first ones."""
ALIKE: Final = 1e-4
ALIKE_HALF: Final = 2e-2
"""Most difference of two equal results, as a share of the largest remembered one, in 16-bit formats (`ALIKE`: in 32
bits): batches of another size are summed in another order."""

Rows = list[torch.Tensor]
"""Some numbers of each row, in one tensor per input."""


class _Row:
    """A remembered row: its result, the step in which it last came, and the number of times it came."""

    __slots__ = ("output", "step", "times")

    def __init__(self, step: int, output: npt.NDArray[Any]) -> None:
        self.output, self.step, self.times = output, step, 1


class Returning:
    """Counts how often the rows of one model return."""

    def __init__(self) -> None:
        """Starts without remembered rows."""
        self.calls = self.sure = 0
        """Number of calls so far, including skipped ones; and the call after which no row is counted, 0 = all are."""
        self.differs = False
        """True once a row returned with another result."""
        self._rows: dict[bytes, _Row] = {}
        self._last = 0
        """Number of the last call in which a remembered row returned; 0 = none has."""
        self._scale = 0.0

    def add(self, step: int, inputs: Rows, output: torch.Tensor) -> None:
        """Counts the rows of one call; all tensors are in CPU memory.

        Args:
            step: optimizer step of the call: the same row in the same step does not count as returning.
            inputs: numbers of each input's rows, from `rows_of`.
            output: numbers of the result's rows, from `rows_of`.
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
        if not self._last and len(self._rows) < MOST_ROWS:
            self._remember(step, names, output.float().numpy())

    def _remember(self, step: int, names: list[bytes], results: npt.NDArray[Any]) -> None:
        """Remembers rows that are unique in their batch: blank rows prove nothing."""
        self._scale = max(self._scale, float(np.abs(results).max(initial=0.0)))
        once = Counter(names)
        for name, result in zip(names, results, strict=True):
            if once[name] == 1 and len(self._rows) < MOST_ROWS:
                self._rows.setdefault(name, _Row(step, result))

    @property
    def passes(self) -> float:
        """Mean number of times that each sample came; 1 if the same samples do not return in every pass."""
        times = sorted(row.times for row in list(self._rows.values()))  # the training thread may add some
        if self.differs or len(times) < FEWEST:
            return 1.0
        evenly = times[int(RARE * len(times))] >= max(2.0, EVENLY * times[-1] - 1.0)
        passes = sum(times) / len(times) * self.calls / (self.sure or self.calls)
        return passes if evenly and (self.calls - self._last) * passes <= STILL * self.calls else 1.0


def rows_of(tensor: torch.Tensor, most: int) -> torch.Tensor | None:
    """Copies some numbers of each row of a tensor, on its device; None if its memory is not ordered by rows.

    Args:
        tensor: the tensor; its first dimension counts rows.
        most: most numbers per row.
    """
    if tensor.layout is not torch.strided or tensor.is_nested or not tensor.dim():
        return None
    count = tensor.shape[0]
    size = tensor.numel() // max(count, 1)
    if not size or not (tensor[0].is_contiguous() or (tensor.dim() == 4 and _channels_last(tensor))):
        return None
    taken = min(most, size)
    try:
        return tensor.detach().as_strided((count, taken), (tensor.stride(0), size // taken)).clone()
    except (RuntimeError, TypeError):  # a kind of tensor with another storage
        return None


def weights_of(module: torch.nn.Module) -> list[torch.Tensor]:
    """Copies some numbers of some of a module's weights, on their device, to see later whether they change."""
    found = list(module.parameters())
    some = found[:: max(len(found) // 16, 1)] + found[-1:]
    taken = [(tensor.detach(), min(NUMBERS, tensor.numel())) for tensor in some]
    return [tensor.as_strided((count,), (tensor.numel() // count,)).clone() for tensor, count in taken if count]


def _channels_last(tensor: torch.Tensor) -> bool:
    """True if a 4D tensor is stored channels last."""
    return tensor.is_contiguous(memory_format=torch.channels_last)


def _names(inputs: Rows) -> list[bytes]:
    """Returns the bytes of each row's numbers, with all inputs joined."""
    parts = []
    for tensor in inputs:
        raw = tensor.view(torch.uint8).numpy()
        parts.append(np.ascontiguousarray(raw).view(f"V{raw.shape[1]}")[:, 0].tolist())
    return parts[0] if len(parts) == 1 else [b"".join(row) for row in zip(*parts, strict=True)]
