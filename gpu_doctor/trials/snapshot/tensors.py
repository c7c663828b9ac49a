"""The bytes of tensors and arrays, kept once per storage and written back in place.

Storages rather than tensors are copied, so that views of one storage (flattened weights, gradient buckets) are kept
once and come back together, and so that writing back does not look like an in-place change to autograd.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

from gpu_doctor import formatting
from gpu_doctor.machine import torch_memory

BIG_DATA_BYTES: Final = 64 * 2**20
"""A dataset's tensor or array above this is not copied: training reads it. Whether it was changed is checked, in the
CPU's memory by a checksum over a million bytes of it: a few single numbers could be changed unseen, a row hardly."""
_SPARSE_USE: Final = 4
"""A storage of which less than one in so many bytes is used by the tensors at hand is kept tensor by tensor."""
_PROBE_BYTES: Final = 2**20
_SPARSE: Final = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
_OF_SIZE: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
_ROOM: Final = 4
"""A copy stays on its device where so many times its bytes are free there: the training needs the rest."""


class SnapshotTooLarge(MemoryError):
    """The state does not fit into the memory that may be taken for it; the message has the figures."""


@dataclass
class _Tensor:
    """A tensor with all of its state besides the bytes."""

    tensor: torch.Tensor
    alias: torch.Tensor
    """Shares the storage and the geometry that the tensor had, whatever is assigned to its `.data` later."""
    kind: type
    leaf: bool
    requires_grad: bool
    grad: torch.Tensor | None
    hooks: Any


class TensorStore:
    """Keeps tensors; `copy` after construction, so that `bytes` can be looked at before."""

    def __init__(
        self,
        tensors: Iterable[torch.Tensor],
        data: Mapping[int, str],
        *,
        to_host: bool = False,
    ) -> None:
        """Plans what to copy, and where: on the device of each tensor, or on the CPU where that is short of memory.

        Args:
            tensors: each once.
            data: ids of tensors that datasets hold and that are not state of a module, with a name for people.
            to_host: all copies are kept on the CPU: what a device holds is to be measured.
        """
        self.uncopied: dict[int, str] = {}
        """id of each tensor that is not copied -> its description, such as `train (a tensor of 120 MiB)`."""
        self.unrestorable: list[str] = []
        self._entries: list[_Tensor] = []
        self._planned: list[Any] = []
        """Storages to copy, and tensors that are copied one by one."""
        self._watched: list[tuple[torch.Tensor, tuple[int, int]]] = []
        """Tensors that are not copied, each with the marks that show a change."""
        self._sparse: dict[int, torch.Tensor] = {}
        """id of a part of `_planned` -> the tensor, of which an in-place change makes new parts."""
        self._counted: list[tuple[tuple[str, int], _unsafe_preserve_version_counter]] = []
        """Place of a storage, and what lets autograd forget the changes since: once the bytes are back, what autograd
        saved of them is right again."""
        self._data = data
        self._saved: list[tuple[Any, Any]] = []
        """Each of them with its copy."""
        users: dict[tuple[str, int], tuple[Any, list[torch.Tensor]]] = {}
        for tensor in tensors:
            with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
                try:
                    self._plan(tensor, users)
                except Exception as error:
                    self.unrestorable.append(f"a {type(tensor).__name__} ({error})")
        for storage, aliases in users.values():
            sparse = sum(map(_size, aliases)) * _SPARSE_USE < storage.nbytes()
            self._planned += aliases if sparse else [storage]
        uncopied = {_place_of(tensor) for tensor, _ in self._watched}
        self._counted = [counted for counted in self._counted if counted[0] not in uncopied]
        by_device = self._by_device()
        self.bytes = sum(by_device.values())
        """Memory of all copies, in bytes."""
        self._host = on_host(by_device, _free_bytes, to_host)
        self.host_bytes = sum(needed for device, needed in by_device.items() if device in self._host)
        """Memory of the copies on the CPU, in bytes."""

    def _by_device(self) -> dict[torch.device, int]:
        """Bytes to be copied."""
        found: dict[torch.device, int] = {}
        for planned in self._planned:
            found[planned.device] = found.get(planned.device, 0) + _size(planned)
        return found

    def _plan(self, tensor: torch.Tensor, users: dict[tuple[str, int], tuple[Any, list[torch.Tensor]]]) -> None:
        """Adds a tensor, and plans a copy of it or of its storage (through `users`), or only a watch of big data."""
        leaf = tensor.is_leaf
        alias = tensor.detach()
        self._entries.append(
            _Tensor(
                tensor,
                alias,
                type(tensor),
                leaf,
                tensor.requires_grad,
                tensor.grad if leaf else None,
                tensor._backward_hooks if leaf else None,
            )
        )
        if alias.is_meta or alias.numel() == 0:
            return
        if alias.layout in _SPARSE:
            self._sparse[id(alias)] = tensor
        if alias.layout is not torch.strided or alias.is_quantized:
            self._planned.append(alias)
            self._count(("", id(alias)), tensor)
            return
        size = _size(alias)
        parameter = issubclass(type(tensor), torch.nn.Parameter) or tensor.requires_grad
        if id(tensor) in self._data and size > BIG_DATA_BYTES and not parameter and not alias.is_inference():
            self._watched.append((tensor, _marks(tensor)))
            self.uncopied[id(tensor)] = f"{self._data[id(tensor)]} (a tensor of {formatting.size(size)})"
            return
        place = _place_of(alias)
        users.setdefault(place, (alias.untyped_storage(), []))[1].append(alias)
        self._count(place, tensor)

    def _count(self, place: tuple[str, int], tensor: torch.Tensor) -> None:
        """Stores a tensor's version counter; tensors of inference mode have none."""
        if not tensor.is_inference():
            self._counted.append((place, _unsafe_preserve_version_counter(tensor)))

    def copy(self) -> None:
        """Makes the planned copies."""
        there = {device: taken for device, taken in self._by_device().items() if device not in self._host}
        torch_memory.hold(self, {device.index: taken for device, taken in there.items()})
        with torch.no_grad(), _settled(self._by_device()):
            self._saved = [(planned, self._copied(planned)) for planned in self._planned]

    def _copied(self, source: Any) -> Any:
        """A copy of a storage or a tensor."""
        return source.cpu() if source.device.type != "cpu" and source.device in self._host else source.clone()

    def restore(self) -> list[str]:
        """Writes the bytes back, then geometry, gradients and flags; returns a sentence for each thing that failed."""
        notes: list[str] = []
        # A copied view of data that is not copied is written below: that is no change of the cell's.
        unwritten = [_unsafe_preserve_version_counter(tensor) for tensor, _ in self._watched]
        with torch._C.DisableTorchFunctionSubclass(), torch.no_grad(), _settled(self._by_device()):
            for planned, saved in self._saved:
                if id(planned) in self._sparse:
                    _fill_sparse(self._sparse[id(planned)], saved)
                    continue
                if not isinstance(planned, torch.Tensor) and planned.nbytes() != saved.nbytes():
                    planned.resize_(saved.nbytes())
                planned.copy_(saved)
            # Places first, of all: a gradient can be assigned only to a tensor that has its dtype and shape again.
            placed = [entry for entry in self._entries if _done(_place, entry, notes)]
            for entry in placed:
                _done(_flag, entry, notes)
            for version in (*unwritten, *(version for _, version in self._counted)):
                version.__exit__(None, None, None)
        return notes + [_stays(entry) for entry in self.changed()]

    def changed(self) -> list[str]:
        """Returns the data that is not copied and has changed, in the words of `uncopied`."""
        return [self.uncopied[id(tensor)] for tensor, marks in self._watched if _marks(tensor) != marks]


def _stays(what: str) -> str:
    return f"{what} was changed in place and was too large to copy: load it again."


def _done(step: Callable[[_Tensor], None], entry: _Tensor, notes: list[str]) -> bool:
    """True if a step of putting a tensor back went well; where not, a sentence is noted."""
    try:
        step(entry)
    except Exception as error:
        notes.append(f"A tensor {_shape(entry.alias)} could not be put back: {error}")
        return False
    return True


def _place_of(tensor: torch.Tensor) -> tuple[str, int]:
    """Returns device and address of a tensor's storage."""
    return str(tensor.device), tensor.untyped_storage().data_ptr()


def _size(source: Any) -> int:
    """Returns the bytes of a storage or a tensor."""
    return int(source.numel() * source.element_size() if isinstance(source, torch.Tensor) else source.nbytes())


def _shape(tensor: torch.Tensor) -> str:
    try:
        return f"of shape {tuple(tensor.shape)}"
    except RuntimeError:  # a nested tensor has none
        return "without one shape"


def on_host(
    by_device: Mapping[torch.device, int], free_bytes: Callable[[torch.device], int], to_host: bool
) -> set[torch.device]:
    """The devices whose tensors are kept on the CPU: their own memory is short, or is to be left alone.

    Args:
        by_device: bytes to copy, by device.
        free_bytes: returns the free memory of a device, in bytes.
        to_host: True to copy the tensors of all devices to the host.
    """
    short = (device for device, needed in by_device.items() if free_bytes(device) < _ROOM * needed)
    return set(by_device) if to_host else {torch.device("cpu"), *short} & set(by_device)


def _free_bytes(device: torch.device) -> int:
    """Returns the free bytes of a CUDA device; a number without bounds for other devices."""
    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else 1 << 62


@contextmanager
def _settled(devices: Iterable[torch.device]) -> Iterator[None]:
    """Waits for these devices at both ends: copies run on the current stream, and the cell may have others."""
    used = [device for device in devices if device.type == "cuda"] if torch.cuda.is_initialized() else []
    for device in used:
        torch.cuda.synchronize(device)
    yield
    for device in used:
        torch.cuda.synchronize(device)


def _place(entry: _Tensor) -> None:
    """Restores storage, shape and dtype of a tensor."""
    tensor, alias = entry.tensor, entry.alias
    if hasattr(entry.kind, "materialize"):  # a lazy parameter, which tells neither shape nor place
        if type(tensor) is not entry.kind:
            tensor.grad = None
            tensor.data = alias
            tensor.__class__ = entry.kind
        return
    if tensor.grad_fn is not None and entry.leaf:
        tensor.detach_()  # such as `total += loss` on a plain tensor
    if not _same_place(tensor, alias):
        if entry.leaf:
            tensor.grad = None
        tensor.data = alias


def _flag(entry: _Tensor) -> None:
    """Restores `grad`, `requires_grad` and the hooks of a leaf tensor."""
    tensor = entry.tensor
    if not entry.leaf or hasattr(entry.kind, "materialize"):
        return
    if tensor.requires_grad != entry.requires_grad:
        tensor.requires_grad_(entry.requires_grad)
    if tensor.grad is not entry.grad:
        tensor.grad = entry.grad
    if tensor._backward_hooks is not entry.hooks:
        tensor._backward_hooks = entry.hooks


def _fill_sparse(tensor: torch.Tensor, saved: torch.Tensor) -> None:
    """Gives a sparse tensor a copy of the parts that it had."""
    with torch.inference_mode() if tensor.is_inference() else nullcontext():
        if tensor.layout is torch.sparse_coo:
            tensor.data = saved.to(tensor.device, copy=True)
        else:  # whose `.data` cannot be assigned
            tensor.resize_as_sparse_(saved).copy_(saved)


def _same_place(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True if both show the same bytes in the same way."""
    if a.is_nested or b.is_nested:  # a strided one tells neither shape nor strides
        return a.is_nested and b.is_nested and a.layout == b.layout and a.data_ptr() == b.data_ptr()
    if a.dtype != b.dtype or a.device != b.device or a.shape != b.shape or a.layout != b.layout:
        return False
    if a.layout is not torch.strided or a.is_meta:
        return True
    return a.data_ptr() == b.data_ptr() and a.stride() == b.stride()


class ArrayStore:
    """Keeps numpy arrays; views of the same bytes are kept once."""

    def __init__(self, arrays: Iterable[Any], data: Mapping[int, str]) -> None:
        """Plans what to copy; `data`: ids of arrays that datasets hold, with a name for people."""
        self.bytes = 0
        self.uncopied: dict[int, str] = {}
        """id of each array that is not copied -> its description, such as `train (an array of 120 MiB)`."""
        self._arrays: dict[tuple[Any, ...], Any] = {}
        self._watched: list[tuple[Any, int]] = []
        for array in arrays:
            if not array.flags.writeable or array.size == 0:
                continue
            if id(array) in data and array.nbytes > BIG_DATA_BYTES and array.dtype != object:
                self._watched.append((array, _probe(array)))
                self.uncopied[id(array)] = f"{data[id(array)]} (an array of {formatting.size(array.nbytes)})"
                continue
            place = (array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str)
            if place not in self._arrays:
                self._arrays[place] = array
                self.bytes += array.nbytes
        self._saved: list[tuple[Any, Any]] = []

    def copy(self) -> None:
        """Copies what was planned."""
        self._saved = [(array, np.array(array, copy=True, subok=False)) for array in self._arrays.values()]

    def restore(self) -> list[str]:
        """Writes the bytes back; returns a sentence for each array that could not be written."""
        notes: list[str] = []
        for array, saved in self._saved:
            try:
                if array.shape != saved.shape or array.dtype != saved.dtype:
                    raise ValueError(f"its shape is now {array.shape}, it was {saved.shape}")
                array.flags.writeable = True
                np.copyto(array.view(np.ndarray), saved, casting="no")
            except Exception as error:
                notes.append(f"An array of shape {saved.shape} could not be put back: {error}")
        return notes + [_stays(entry) for entry in self.changed()]

    def changed(self) -> list[str]:
        """Returns the data that is not copied and has changed, in the words of `uncopied`."""
        return [self.uncopied[id(array)] for array, probe in self._watched if _probe(array) != probe]


def _marks(tensor: torch.Tensor) -> tuple[int, int]:
    """Returns a tensor's version and, on the CPU, a checksum: numpy writes past the version."""
    if tensor.device.type != "cpu":
        return tensor._version, 0
    dtype = _OF_SIZE.get(tensor.element_size(), torch.int64)
    with torch.no_grad():
        return tensor._version, _probe(torch.empty(0, dtype=dtype).set_(tensor.untyped_storage()).numpy())


def _probe(array: Any) -> int:
    """A checksum over about a million bytes spread evenly over the array."""
    flat = array.reshape(-1) if array.flags.c_contiguous else array.flat
    step = array.size // (_PROBE_BYTES // max(1, array.itemsize)) | 1  # odd: pairs of numbers show both in turn
    return zlib.crc32(np.ascontiguousarray(flat[::step]).tobytes())
