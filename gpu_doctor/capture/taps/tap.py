"""The form of a tap: a listener on one seam of the training loop, on for one run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, MutableMapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from gpu_doctor.capture.patching import Patches
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.parameters import Parameters

if TYPE_CHECKING:
    import torch


@dataclass
class TapScope:
    """What the taps of one run share."""

    recorder: Recorder
    patches: Patches
    namespace: MutableMapping[str, Any] | None = None
    """Where the code runs, None for a `watch()` block."""
    accelerated: bool = False
    """A device other than the CPU is there to copy to and to wait for."""
    pulled: list[Callable[[], None]] = field(default_factory=list)
    """Called when a loader is first iterated."""
    optimized: list[Callable[[torch.optim.Optimizer], None]] = field(default_factory=list)
    """Called before the first step of every optimizer."""
    listeners: dict[int, Any] = field(default_factory=dict)
    """`forward.Listener`s on the outermost modules, by their id."""
    owned: Parameters = field(default_factory=Parameters)
    """Of every optimizer met so far."""
    heard: list[Callable[[torch.nn.Module, bool, Any, Any, Any], None]] = field(default_factory=list)
    """Called after every forward of an outermost module, while somebody looks: module, whether it is trained, its
    arguments, named arguments and output. Empty most of the time."""
    stepped: list[Callable[[], None]] = field(default_factory=list)
    """Called after every optimizer step while something is still looked for; empty most of the time."""
    steps: Counter[int] = field(default_factory=Counter)
    """How often each optimizer, by its id, has stepped while somebody of `stepped` looked."""
    differentiated: list[Callable[[Any], None]] = field(default_factory=list)
    """Called with the loss before a backward pass of the training thread, while somebody looks: empty most of the
    time."""
    backed: list[Callable[[], None]] = field(default_factory=list)
    """Called when a backward pass of the training thread has ended, still within its phase."""


Tap: TypeAlias = Callable[[TapScope], AbstractContextManager[None]]
