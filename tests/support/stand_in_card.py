"""How long a card takes for an operation: a roofline. Bytes over bandwidth or arithmetic over its peak, whichever is
longer, and no kernel is shorter than the shortest.

The card is an A100 at one hundredth of its speed, so that a program with tensors small enough for a CPU keeps it as
busy as a real one keeps a real card. The host is not slowed down: its launches, its Python and its loader cost what
they do. What the roofline does not know: layouts (channels_last), alignment to tensor cores, occupancy of small
kernels, cudnn's tuning, fusion by a compiler, the time to pin memory or to allocate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.utils.flop_counter import flop_registry

SCALE: Final = 0.01
_NO_KERNEL: Final = {
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach", "alias", "_unsafe_view"),
    *("lift_fresh", "_reshape_alias", "resize_", "set_", "_fused_sdp_choice", "is_same_size", "record_stream"),
}
_CONVOLUTIONS: Final = {"convolution", "convolution_backward", "_convolution"}


@dataclass(frozen=True)
class Card:
    """What the roofline is made of (NVIDIA's data sheet of the A100 40 GB PCIe, times SCALE where it is a speed)."""

    name: str = "Stand-in A100 at 1/100"
    capability: tuple[int, int] = (8, 0)
    fp64_flops: float = 9.7e12 * SCALE
    fp32_flops: float = 19.5e12 * SCALE
    tf32_flops: float = 156e12 * SCALE
    half_flops: float = 312e12 * SCALE
    bytes_per_s: float = 1555e9 * SCALE
    pinned_per_s: float = 25e9 * SCALE
    pageable_per_s: float = 8e9 * SCALE
    """From pageable memory: through a staging buffer (typical of PCIe 4)."""
    memory: int = int(40e9)
    launch_ns: int = 5_000
    """Host: a launch. The Python of the program and torch's own dispatching come on top, as they really are."""
    shortest_ns: int = 2_500
    """Device: the shortest kernel."""

    def kernel_ns(self, func: Any, args: Any, kwargs: Any, out: Any) -> int:
        """Device time of one operation, 0 = it runs no kernel."""
        packet = func.overloadpacket
        name = packet.__name__
        if name in _NO_KERNEL or is_view(func):
            return 0
        tensors = [*_tensors(args), *_tensors(list(kwargs.values())), *_tensors(out)]
        moved = sum(t.numel() * t.element_size() for t in tensors) / self.bytes_per_s
        counted = flop_registry.get(packet)
        flops = counted(*args, **kwargs, out_val=out) if counted is not None else 0
        arithmetic = flops / self._peak(name, _tensors(args)) if flops else 0.0
        return max(self.shortest_ns, round(max(moved, arithmetic) * 1e9))

    def copy_ns(self, nbytes: int, pinned: bool) -> int:
        """Device time of a copy between it and the host."""
        return max(self.shortest_ns, round(nbytes / (self.pinned_per_s if pinned else self.pageable_per_s) * 1e9))

    def _peak(self, name: str, tensors: list[torch.Tensor]) -> float:
        dtype = tensors[0].dtype if tensors else torch.float32
        if dtype in (torch.float16, torch.bfloat16):
            return self.half_flops
        if dtype == torch.float64:
            return self.fp64_flops
        switch = torch.backends.cudnn if name in _CONVOLUTIONS else torch.backends.cuda.matmul
        return self.tf32_flops if switch.allow_tf32 else self.fp32_flops


_views: dict[Any, bool] = {}


def is_view(func: Any) -> bool:
    """Whether it only looks at its argument in another way."""
    known = _views.get(func)
    if known is None:
        returns = func._schema.returns
        known = any(one.alias_info is not None and not one.alias_info.is_write for one in returns)
        _views[func] = known
    return known


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [one for part in value for one in _tensors(part)]
    return []
