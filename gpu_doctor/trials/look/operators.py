"""Finds the costliest operators of torch in profiled steps, from the profiler's events."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis import place
from gpu_doctor.trials.look.callers import Caller
from gpu_doctor.trials.look.result import Operator

MOST: Final = 5
"""Number of operators that a deep look lists."""
_TENSOR_CORES: Final = re.compile(
    r"[his]\d{0,2}884|[his]\d{0,2}1688|[bhis]\d{0,2}16816|hmma|imma|wgmma|gmma|tensorop|xmma_(implicit_)?gemm"
    r"|xmma_sparse|xmma_warp_specialized|first_layer_(fwd|wgrad)_kernel|conv1x1|conv2d_c1_k1|direct_group",
    re.IGNORECASE,
)
"""Names of kernels that use tensor cores, after the list of PyTorch's own TensorBoard plugin
(github.com/pytorch/kineto, tb_plugin/torch_tb_profiler/profiler/tensor_core.py), with Hopper's instruction wgmma."""


@dataclass
class _Sum:
    """The total time, calls and kernels of the operators of one name."""

    us: float = 0.0
    calls: int = 0
    kernels: Counter[str] = field(default_factory=Counter)


def costliest(
    events: Iterable[Any], callers: Mapping[str, Counter[Caller]], steps: int, wall_s: float, lines: Any
) -> tuple[Operator, ...]:
    """Returns the operators that take most time.

    The time of an inner operator counts for the operator that the user's code calls: `aten::convolution` instead of
    `aten::mkldnn_convolution`.

    Args:
        events: events of torch.profiler, `profile.events()`.
        callers: operators that Python or the engine of the backward pass calls, with their callers.
        steps: number of profiled steps.
        wall_s: wall-clock of these steps, in seconds.
        lines: returns the text of a line of a file, like `linecache.getline`.
    """
    sums = _sums(events, callers)
    ranked = sorted(sums.items(), key=lambda item: -item[1].us)[:MOST]
    return tuple(
        Operator(
            name=formatting.clean(name, 80),
            seconds=1e-6 * total.us / steps,
            share=1e-6 * total.us / wall_s if wall_s > 0 else 0.0,
            calls=total.calls / steps,
            kernel=formatting.clean(total.kernels.most_common(1)[0][0], 120) if total.kernels else "",
            **_called_by(callers.get(name, Counter()), lines),
        )
        for name, total in ranked
        if total.us > 0
    )


def on_tensor_cores(events: Iterable[Any]) -> float | None:
    """Returns the share of kernel time in kernels that use tensor cores, by their names; None without kernels."""
    every = [kernel for event in events for kernel in event.kernels]
    total = float(sum(kernel.duration for kernel in every))
    used = float(sum(kernel.duration for kernel in every if _TENSOR_CORES.search(kernel.name)))
    return used / total if total > 0 else None


def _sums(events: Iterable[Any], known: Mapping[str, Any]) -> dict[str, _Sum]:
    listed = [event for event in events if _is_operator(event)]
    on_device = any(event.kernels for event in listed)
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
    """Returns the innermost operator around an event that is called from outside torch, or the event itself."""
    around = event
    while around is not None:
        if around.name in known:
            return around
        around = around.cpu_parent
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
    """Returns the seconds of the outermost events whose names begin with a text, such as `Optimizer.step`."""
    found = [event for event in events if event.name.startswith(begins) and event.device_type.name == "CPU"]
    inner = {id(event) for event in found if event.cpu_parent is not None and event.cpu_parent.name.startswith(begins)}
    return 1e-6 * float(sum(event.time_range.elapsed_us() for event in found if id(event) not in inner))
