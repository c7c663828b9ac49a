"""What a fold finds: steps, losses, copies, looks of the line sampler, and the roles of loaders."""

from __future__ import annotations

from typing import Any, NamedTuple

from gpu_doctor.capture.gpu.marks import Marked


class Step(NamedTuple):
    """A step that has ended."""

    values: list[float]
    """In the order of `steps.STEP_COLUMNS`."""
    end_ns: int
    marks: list[Marked] | None
    """Those of the device, where all of the step was marked."""
    calls: list[dict[Any, list[float]]]
    """The costly calls of each of its spans that has any, see `Span.calls`."""


class Place(NamedTuple):
    """Where the loop was when a copy was made: two copies in one place have seen the same batch."""

    step: int
    source: int
    """The number of the iterator that was asked last; 0 = none."""
    delivered: int
    """Batches that it had given."""


class Copied(NamedTuple):
    """A copy, or where a batch lies; none of an evaluation's."""

    code: int
    """COPYING, COPIED, CAME or BATCH_AT."""
    at_ns: int
    arg: Any
    """The event's."""
    place: Place


class Look(NamedTuple):
    """A look of the line sampler at the training thread's stack."""

    begin_ns: int
    end_ns: int
    """Before and after the stack was taken: in between the loop may have gone over to another phase."""
    seen: Any
    """A value by which the sampler knows the look."""


class Seen(NamedTuple):
    """Where the loop was at a look."""

    phase: int
    """The phase that the thread was in, -1 where it changed meanwhile."""
    feeding: bool
    """A batch had come, and no forward had begun since."""
    first: bool
    """No step had ended yet."""
    seen: Any
    """`Look.seen`."""


class Found(NamedTuple):
    """All that was found since the last look at it."""

    steps: list[Step]
    losses: list[tuple[int, int]]
    """The step, and the number of its loss."""
    copies: list[Copied]
    looks: list[Seen]
    roles: list[tuple[str, str]]
    """A loader's key, and its role in the loop."""
