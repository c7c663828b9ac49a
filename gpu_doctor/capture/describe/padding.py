"""Which tensors of a batch hold samples of different lengths that were padded to one, and how long each of them is.

Exact where the batch has a mask; else told by the tokens, whole numbers in two dimensions: rows that end (or begin) in
a run of one value that hardly occurs elsewhere. Only tensors in the CPU's memory are read, as numpy sees them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from gpu_doctor.capture.describe.batches import named_tensors

SHORTEST: Final = 16
"""Shorter dimensions are no sequences that are worth a thought: colours, boxes, a few columns of a table."""
MOST_NUMBERS: Final = 1 << 22
"""Larger tensors are not read: some ms."""
MOST_ROWS_REAL: Final = 0.5
"""Of the rows at most so many may reach the end: of lengths that vary, the longest few do."""
STRAY: Final = 0.02
"""Of the real positions at most so many may hold the padding's value: an end-of-text token that is also the padding
comes once a text, while a letter, a class, a black pixel or an empty column come everywhere."""
MASK: Final = re.compile(r"attention_mask|pad\w*_?mask|\A(src|tgt|input|encoder)?_?mask\Z", re.IGNORECASE)
OF_PADDING: Final = re.compile(r"pad", re.IGNORECASE)
"""Masks of such a name are true where there is padding, as torch's `key_padding_mask`; others where there is none."""
NO_TOKENS: Final = re.compile(r"label|target|type|position|segment|mask", re.IGNORECASE)
"""Tensors of such a name go along with the tokens, and do not tell their length."""
_DEEPEST: Final = 2

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Padded:
    """One padded tensor of a batch."""

    name: str
    told_by: str
    """Name of the mask, or the padding's value."""
    length: int
    """Positions in a row, padding included."""
    lengths: Array
    """Of each row without its padding."""


def cpu_tensors(batch: Any) -> list[tuple[str, torch.Tensor]]:
    """The batch's plain tensors in the CPU's memory, with their names: a key, an attribute, `batch[0]`."""
    return [
        (name, one)
        for name, one in named_tensors(batch, depth=_DEEPEST, objects=False)
        if type(one) is torch.Tensor and one.device.type == "cpu" and one.layout is torch.strided and not one.is_nested
    ]


def padded_in(tensors: list[tuple[str, torch.Tensor]]) -> list[Padded]:
    """Those that are padded, one for each size: what has the size of a mask, or of the first tokens, goes with it."""
    arrays = [(name, array) for name, one in tensors if (array := _whole_numbers(one)) is not None]
    found: list[Padded] = []
    known: set[tuple[int, ...]] = set()
    for name, one in arrays:
        if MASK.search(name) and one.shape not in known and _is_mask(one):
            known.add(one.shape)
            real = one == 0 if OF_PADDING.search(name) else one != 0
            found.append(Padded(name, name, one.shape[1], _extents(real)))
    for name, one in arrays:
        if one.dtype.kind == "b" or one.shape in known or NO_TOKENS.search(name):
            continue
        known.add(one.shape)
        seen = _of_tokens(name, one)
        found += [seen] if seen is not None else []
    return found


def _whole_numbers(one: torch.Tensor) -> Array | None:
    """The memory of rows of whole numbers; `numpy()` would forbid its owner to resize it. None for any other tensor."""
    other = one.is_floating_point() or one.is_complex() or one.is_quantized
    if other or one.dim() != 2 or one.shape[1] < SHORTEST or not 0 < one.numel() <= MOST_NUMBERS:
        return None
    try:
        array: Array = np.from_dlpack(one)
    except (BufferError, RuntimeError, TypeError):
        return None
    return array


def _is_mask(one: Array) -> bool:
    return bool(one.dtype.kind == "b" or (one.min() >= 0 and one.max() <= 1))


def _of_tokens(name: str, rows: Array) -> Padded | None:
    for turned in (rows, rows[:, ::-1]):
        values, counts = np.unique(turned[:, -1], return_counts=True)
        value = values[counts.argmax()]
        if counts.max() >= (1.0 - MOST_ROWS_REAL) * len(rows):
            lengths = _lengths(turned != value)
            if lengths is not None:
                return Padded(name, str(value), rows.shape[1], lengths)
    return None


def _lengths(real: Array) -> Array | None:
    """Length of each row without the run at its end; None where what is in the run also occurs elsewhere."""
    lengths = _ends(real)
    if not lengths.max() or lengths.min() == real.shape[1]:
        return None
    strays = lengths.sum() - real.sum()
    return lengths if strays <= STRAY * lengths.sum() else None


def _extents(real: Array) -> Array:
    """Length of each row of a mask up to its last real position, or from its first one where it is padded in front."""
    ends, begins = _ends(real), _ends(real[:, ::-1])
    return ends if ends.sum() <= begins.sum() else begins


def _ends(real: Array) -> Array:
    ends: Array = np.where(real.any(1), real.shape[1] - real[:, ::-1].argmax(1), 0)
    return ends
