"""Finds the tensors of a batch that were padded to one length, and the length of each sample before.

With a mask in the batch the result is exact. Otherwise it is inferred from tokens, integers in two dimensions: rows
that end (or begin) with a run of one value that hardly occurs elsewhere. Only tensors in CPU memory are read, as numpy
arrays.
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
"""Shortest dimension that counts as a sequence: shorter ones are colours, boxes, a few columns of a table."""
MOST_NUMBERS: Final = 1 << 22
"""Most elements of a tensor that is read, which takes some ms."""
MOST_ROWS_REAL: Final = 0.5
"""Largest share of rows that may reach the end: if lengths vary, only the longest rows do."""
STRAY: Final = 0.02
"""Largest share of real positions with the padding's value: an end-of-text token that is also the padding comes once a
text, while a letter, a class, a black pixel or an empty column comes everywhere."""
MASK: Final = re.compile(r"attention_mask|pad\w*_?mask|\A(src|tgt|input|encoder)?_?mask\Z", re.IGNORECASE)
OF_PADDING: Final = re.compile(r"pad", re.IGNORECASE)
"""Names of masks that are true at padding, as torch's `key_padding_mask`; other masks are true at real positions."""
NO_TOKENS: Final = re.compile(r"label|target|type|position|segment|mask", re.IGNORECASE)
"""Names of tensors that come with the tokens, and do not show their length."""
_DEEPEST: Final = 2

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Padded:
    """One padded tensor of a batch."""

    name: str
    told_by: str
    """Name of the mask, or value of the padding."""
    length: int
    """Number of positions in a row, including padding."""
    lengths: Array
    """Length of each row without its padding."""


def cpu_tensors(batch: Any) -> list[tuple[str, torch.Tensor]]:
    """Returns the batch's plain tensors in CPU memory, with their names: a key, an attribute, `batch[0]`."""
    return [
        (name, tensor)
        for name, tensor in named_tensors(batch, depth=_DEEPEST, objects=False)
        if type(tensor) is torch.Tensor
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not tensor.is_nested
    ]


def padded_in(tensors: list[tuple[str, torch.Tensor]]) -> list[Padded]:
    """Returns the padded tensors, one for each size: others of the same size as a mask or as tokens belong to it."""
    arrays = [(name, array) for name, tensor in tensors if (array := _whole_numbers(tensor)) is not None]
    found: list[Padded] = []
    known: set[tuple[int, ...]] = set()
    for name, rows in arrays:
        if MASK.search(name) and rows.shape not in known and _is_mask(rows):
            known.add(rows.shape)
            real = rows == 0 if OF_PADDING.search(name) else rows != 0
            found.append(Padded(name, name, rows.shape[1], _mask_lengths(real)))
    for name, rows in arrays:
        if rows.dtype.kind == "b" or rows.shape in known or NO_TOKENS.search(name):
            continue
        known.add(rows.shape)
        padded = _padded_tokens(name, rows)
        found += [padded] if padded is not None else []
    return found


def _whole_numbers(tensor: torch.Tensor) -> Array | None:
    """Returns a 2D integer tensor as an array; None for any other tensor.

    The array shares the memory: `numpy()` would do so too, but forbid the tensor's owner to resize it.
    """
    other = tensor.is_floating_point() or tensor.is_complex() or tensor.is_quantized
    if other or tensor.dim() != 2 or tensor.shape[1] < SHORTEST or not 0 < tensor.numel() <= MOST_NUMBERS:
        return None
    try:
        array: Array = np.from_dlpack(tensor)
    except (BufferError, RuntimeError, TypeError):
        return None
    return array


def _is_mask(mask: Array) -> bool:
    """True if all values are booleans, or 0 and 1."""
    return bool(mask.dtype.kind == "b" or (mask.min() >= 0 and mask.max() <= 1))


def _padded_tokens(name: str, rows: Array) -> Padded | None:
    """Returns the lengths of rows of tokens that are padded at the end or the start; None if they are not padded."""
    for turned in (rows, rows[:, ::-1]):
        values, counts = np.unique(turned[:, -1], return_counts=True)
        value = values[counts.argmax()]
        if counts.max() >= (1.0 - MOST_ROWS_REAL) * len(rows):
            lengths = _lengths_without_padding(turned != value)
            if lengths is not None:
                return Padded(name, str(value), rows.shape[1], lengths)
    return None


def _lengths_without_padding(real: Array) -> Array | None:
    """Returns each row's length without the run at its end.

    None if nothing or everything is padded, or if the run's value also occurs elsewhere.
    """
    lengths = _ends(real)
    if not lengths.max() or lengths.min() == real.shape[1]:
        return None
    strays = lengths.sum() - real.sum()
    return lengths if strays <= STRAY * lengths.sum() else None


def _mask_lengths(real: Array) -> Array:
    """Returns each row's length in a mask: up to its last real position, or from its first if padded at the start."""
    ends, begins = _ends(real), _ends(real[:, ::-1])
    return ends if ends.sum() <= begins.sum() else begins


def _ends(real: Array) -> Array:
    """Returns the position after the last real one in each row; 0 if there is none."""
    ends: Array = np.where(real.any(1), real.shape[1] - real[:, ::-1].argmax(1), 0)
    return ends
