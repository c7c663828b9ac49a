"""Tensors on a stand-in GPU: they say `cuda:0`, and each operation on them is computed on the CPU at once, while the
clocks see a launch, and a wait where a card would make the host wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import torch
from torch.utils._pytree import tree_map

from tests.support.stand_in_card import Card, is_view
from tests.support.stand_in_clock import HostClock, Queue

DEVICE: Final = torch.device("cuda", 0)
STAGED_BYTES: Final = 64 * 1024
"""CUDA takes a pageable copy below this at once; a larger one waits, whatever `non_blocking` says (CUDA's manual)."""
_CPU: Final = torch.device("cpu")
_VALUE_OF: Final = {
    *("_local_scalar_dense", "nonzero", "nonzero_numpy", "masked_select", "equal", "is_nonzero", "unique_dim"),
    *("_unique", "_unique2", "unique_consecutive", "bincount", "repeat_interleave", "item", "allclose"),
}
"""Operations whose result, or its size, the host must know."""


class Memory:
    """Bytes of tensors on the card."""

    def __init__(self, most: int) -> None:
        self.most, self.now, self.peak, self.ooms = most, 0, 0, 0

    def take(self, nbytes: int) -> None:
        """Allocates.

        Raises:
            torch.OutOfMemoryError: if the card is full.
        """
        if self.now + nbytes > self.most:
            self.ooms += 1
            raise torch.OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {nbytes / 2**20:.2f} MiB. GPU 0 has a total capacity of "
                f"{self.most / 2**20:.2f} MiB of which {(self.most - self.now) / 2**20:.2f} MiB is free."
            )
        self.now += nbytes
        self.peak = max(self.peak, self.now)


class Block:
    """What a tensor and its views hold of the card's memory."""

    __slots__ = ("memory", "nbytes")

    def __init__(self, memory: Memory, nbytes: int) -> None:
        self.memory, self.nbytes = memory, 0
        memory.take(nbytes)
        self.nbytes = nbytes

    def __del__(self) -> None:
        self.memory.now -= self.nbytes


class Work(NamedTuple):
    """What one operation asks of the card."""

    ns: int
    waits: bool
    """The host waits until it is done."""
    kernel: bool = True
    """Not a copy between card and host."""


class Gpu:
    """The one card of this process."""

    def __init__(self, card: Card, clock: HostClock) -> None:
        self.card, self.clock, self.queue = card, clock, Queue(clock)
        self.memory = Memory(card.memory)
        self.begun = False
        """A tensor was on it."""

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """One operation on tensors of which some are on the card."""
        name = func.overloadpacket.__name__
        if name == "copy_":
            return self.computed(lambda: self._copy(args[0], args[1], _told(args, kwargs, 2)))
        if name == "_to_copy":
            return self.computed(lambda: self._to_copy(args[0], kwargs))
        return self.computed(lambda: self._kernel(func, name, args, kwargs))

    def computed(self, compute: Callable[[], tuple[Work, Any]]) -> Any:
        """Computes while the host's clock stands still, then lets the clocks see a launch, and a wait if it waits."""
        stopped, cost = self.clock.stop(), 0
        try:
            work, result = compute()
            cost = self.card.launch_ns if work.ns else 0
        finally:
            self.clock.go(stopped, cost)
        if work.ns:
            self.queue.launch(work.ns, work.kernel)
        if work.waits:
            self.queue.wait()
        return result

    def wrap(self, inner: torch.Tensor, block: Block | None = None) -> OnCard:
        """A tensor on the card, with new memory or as a view of old."""
        self.begun = True
        block = block or Block(self.memory, inner.untyped_storage().nbytes())
        made = OnCard(inner)
        made.block = block
        return made

    def _kernel(self, func: Any, name: str, args: Any, kwargs: Any) -> tuple[Work, Any]:
        known: dict[int, OnCard] = {}

        def bare(value: Any) -> Any:
            if isinstance(value, OnCard):
                known[id(value.inner)] = value
                return value.inner
            return _CPU if isinstance(value, torch.device) else value

        inner_args, inner_kwargs = tree_map(bare, args), tree_map(bare, kwargs)
        if inner_kwargs.get("pin_memory"):
            inner_kwargs["pin_memory"] = False
        waits = name in _VALUE_OF or _indexed_by_mask(name, inner_args)
        if name == "_fused_sdp_choice":  # by hand: the other ways have kernels for real cards only
            return Work(0, False), 0
        if name == "_use_cudnn_ctc_loss":  # torch's own kernel
            return Work(0, False), False
        out = func(*inner_args, **inner_kwargs)
        ns = self.card.kernel_ns(func, inner_args, inner_kwargs, out)
        shared = next(iter(known.values())).block if is_view(func) and known else None
        owned = {one.inner.untyped_storage()._cdata: one.block for one in known.values()}

        def dressed(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            same = known.get(id(value))
            if same is not None:
                return same
            return self.wrap(value, shared or owned.get(value.untyped_storage()._cdata))

        stays = kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "cpu"
        return Work(ns, waits), out if stays else tree_map(dressed, out)

    def _to_copy(self, source: Any, kwargs: Any) -> tuple[Work, Any]:
        """A tensor of the card, converted or brought to the host."""
        device = kwargs.get("device")
        kwargs = {name: value for name, value in kwargs.items() if name not in ("device", "pin_memory", "non_blocking")}
        out = torch.ops.aten._to_copy.default(source.inner, **kwargs)
        if device is None or device.type == "cuda":
            moved = self.card.kernel_ns(torch.ops.aten._to_copy.default, [source.inner], {}, out)
            return Work(moved, False), self.wrap(out)
        return Work(self.card.copy_ns(out.numel() * out.element_size(), False), True, kernel=False), out

    def _copy(self, target: torch.Tensor, source: torch.Tensor, non_blocking: bool) -> tuple[Work, Any]:
        """`target.copy_(source)`, at least one of them on the card."""
        to, of = isinstance(target, OnCard), isinstance(source, OnCard)
        _bare(target).copy_(_bare(source))
        if to and of:
            ns = self.card.kernel_ns(torch.ops.aten.copy_.default, [_bare(target), _bare(source)], {}, ())
            return Work(ns, False), target
        here = source if to else target
        nbytes = source.numel() * source.element_size()
        pinned = here.is_pinned()
        waits = not (non_blocking and (pinned or (to and nbytes <= STAGED_BYTES)))
        return Work(self.card.copy_ns(nbytes, pinned), waits, kernel=False), target


_Tensor: Any = torch.Tensor  # its own types forbid what its subclasses are for


class OnCard(_Tensor):  # type: ignore[misc]
    """A tensor on the card."""

    inner: torch.Tensor
    """Where its values really are."""
    block: Block
    gpu: Gpu
    """Of the class: the one card."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> OnCard:
        made: OnCard = _Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=DEVICE,
        )
        made.inner = inner
        return made

    def __init__(self, inner: torch.Tensor) -> None:
        pass

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return cls.gpu.run(func, args, kwargs or {})

    def tolist(self) -> Any:
        """Its values."""
        return self.cpu().tolist()

    def __format__(self, spec: str) -> str:
        return self.item().__format__(spec) if self.dim() == 0 else repr(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _loaded, (self.detach().cpu(), self.requires_grad)

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(parts: dict[str, torch.Tensor], told: None, size: Any, stride: Any) -> OnCard:
        return OnCard.gpu.wrap(parts["inner"])

    @property
    def data(self) -> Any:
        """As of any tensor; what is set is on the card too."""
        return _Tensor.data.__get__(self)

    @data.setter
    def data(self, value: Any) -> None:
        _Tensor.data.__set__(self, value)
        self.inner, self.block = value.inner, value.block


def _loaded(values: torch.Tensor, requires_grad: bool) -> torch.Tensor:
    return values.to(DEVICE).requires_grad_(requires_grad)


def _bare(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.inner if isinstance(tensor, OnCard) else tensor


def _told(args: Any, kwargs: Any, place: int) -> bool:
    return bool(args[place] if len(args) > place else kwargs.get("non_blocking", False))


def _indexed_by_mask(name: str, args: Any) -> bool:
    """Whether the size of what is indexed depends on values."""
    if name not in ("index", "index_put", "index_put_", "_index_put_impl_"):
        return False
    return any(isinstance(one, torch.Tensor) and one.dtype in (torch.bool, torch.uint8) for one in args[1])
