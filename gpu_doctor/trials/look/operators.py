"""Which operators of torch matter in profiled steps, read off the profiler's events."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis import place
from gpu_doctor.trials.look.callers import Caller
from gpu_doctor.trials.look.looked import Operator

MOST: Final = 5
"""Operators that are named."""
_TENSOR_CORES: Final = re.compile(
    r"[his]\d{0,2}884|[his]\d{0,2}1688|[bhis]\d{0,2}16816|hmma|imma|wgmma|gmma|tensorop|xmma_(implicit_)?gemm"
    r"|xmma_sparse|xmma_warp_specialized|first_layer_(fwd|wgrad)_kernel|conv1x1|conv2d_c1_k1|direct_group",
    re.IGNORECASE,
)
"""Names of kernels that use tensor cores, after the list of PyTorch's own TensorBoard plugin
(github.com/pytorch/kineto, tb_plugin/torch_tb_profiler/profiler/tensor_core.py), with Hopper's instruction wgmma."""


@dataclass
class _Sum:
    """What was spent in an operator of one name."""

    us: float = 0.0
    calls: int = 0
    kernels: Counter[str] = field(default_factory=Counter)


def dearest(
    events: Iterable[Any], callers: Mapping[str, Counter[Caller]], steps: int, wall_s: float, lines: Any
) -> tuple[Operator, ...]:
    """The operators on which most is spent.

    What an operator calls below itself is its own, as far as the calls of the user's code reach: `aten::convolution`
    and not `aten::mkldnn_convolution`.

    Args:
        events: of torch.profiler: `profile.events()`.
        callers: the operators that are called from Python or by the engine of the backward pass, with who does.
        steps: that were profiled.
        wall_s: seconds of these steps.
        lines: gives the text of a line of a file: `linecache.getline`.
    """
    sums = _sums(events, callers)
    ranked = sorted(sums.items(), key=lambda item: -item[1].us)[:MOST]
    return tuple(
        Operator(
            name=formatting.clean(name, 80),
            seconds=1e-6 * one.us / steps,
            share=1e-6 * one.us / wall_s if wall_s > 0 else 0.0,
            calls=one.calls / steps,
            kernel=formatting.clean(one.kernels.most_common(1)[0][0], 120) if one.kernels else "",
            **_called_by(callers.get(name, Counter()), lines),
        )
        for name, one in ranked
        if one.us > 0
    )


def on_tensor_cores(events: Iterable[Any]) -> float | None:
    """Share of the kernels' time in kernels whose names say that they use tensor cores; None without kernels."""
    every = [kernel for event in events for kernel in event.kernels]
    total = float(sum(one.duration for one in every))
    used = float(sum(one.duration for one in every if _TENSOR_CORES.search(one.name)))
    return used / total if total > 0 else None


def _sums(events: Iterable[Any], known: Mapping[str, Any]) -> dict[str, _Sum]:
    listed = [one for one in events if _is_operator(one)]
    on_device = any(one.kernels for one in listed)
    sums: dict[str, _Sum] = {}
    for event in listed:
        at = _called(event, known)
        into = sums.setdefault(at.name, _Sum())
        into.us += event.self_device_time_total if on_device else event.self_cpu_time_total
        into.calls += at is event
        for kernel in event.kernels:
            into.kernels[kernel.name] += kernel.duration
    return sums


def _is_operator(event: Any) -> bool:
    return (
        event.device_type.name == "CPU"
        and not event.is_user_annotation
        and "::" in event.name
        and (not event.name.startswith("autograd::engine"))
    )


def _called(event: Any, known: Mapping[str, Any]) -> Any:
    """The nearest operator around this one that is called from outside of torch, or this one itself."""
    one = event
    while one is not None:
        if one.name in known:
            return one
        one = one.cpu_parent
    return event


def _called_by(callers: Counter[Caller], lines: Any) -> dict[str, str]:
    if not callers:
        return {}
    ((first, _),) = callers.most_common(1)
    if first.place is None:
        return {"module": formatting.clean(first.module, 80)}
    file, line = first.place.file, first.place.line
    return {
        "module": formatting.clean(first.module, 80),
        "place": f"{formatting.clean(place(file), 60)} line {line}",
        "text": formatting.clean(lines(file, line).strip(), 120),
    }


def marked(events: Sequence[Any], begins: str) -> float:
    """Seconds of the outermost events whose names begin so, such as `Optimizer.step`."""
    found = [one for one in events if one.name.startswith(begins) and one.device_type.name == "CPU"]
    inner = {id(one) for one in found if one.cpu_parent is not None and one.cpu_parent.name.startswith(begins)}
    return 1e-6 * float(sum(one.time_range.elapsed_us() for one in found if id(one) not in inner))
