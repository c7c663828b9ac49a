"""Results of a fold: steps, losses, copies, stack samples, and the roles of loaders."""

from __future__ import annotations

from typing import Any, NamedTuple

from gpu_doctor.capture.gpu.marks import Marked


class Step(NamedTuple):
    """A step that has ended."""

    values: list[float]
    """The step's row, in the order of `steps.STEP_COLUMNS`."""
    end_ns: int
    marks: list[Marked] | None
    """Marks of the device; None unless the whole step was marked."""
    calls: list[dict[Any, list[float]]]
    """Costly calls of each of its spans that has any, see `Span.calls`."""


class Place(NamedTuple):
    """Place in the loop at which a copy was made: two copies in one place belong to the same batch."""

    step: int
    source: int
    """Number of the iterator that got the last request; 0 = none."""
    delivered: int
    """Number of batches that this iterator had delivered."""


class Copied(NamedTuple):
    """A copy to or from a device, or the addresses of a batch; those of evaluations are left out."""

    code: int
    """COPYING, COPIED, CAME or BATCH_AT."""
    at_ns: int
    arg: Any
    """Argument of the event."""
    place: Place


class StackSample(NamedTuple):
    """A sample of the training thread's stack, as the line sampler takes it."""

    begin_ns: int
    end_ns: int
    """Times before and after the stack was read, in ns; the phase may have changed in between."""
    seen: Any
    """Value by which the sampler recognises the sample."""


class PlacedSample(NamedTuple):
    """A stack sample with the phase that the loop was in."""

    phase: int
    """Phase that the thread was in; -1 if it may have changed meanwhile."""
    feeding: bool
    """True if a batch had come, and no forward had begun since."""
    first: bool
    """True if no step had ended yet."""
    seen: Any
    """The sampler's value, from `StackSample.seen`."""


class Found(NamedTuple):
    """Everything that the step clock found since the last call of `StepClock.found`."""

    steps: list[Step]
    losses: list[tuple[int, int]]
    """Step number and number of the loss, for each stored loss."""
    copies: list[Copied]
    stack_samples: list[PlacedSample]
    roles: list[tuple[str, str]]
    """Key and role of each loader whose role was found."""
