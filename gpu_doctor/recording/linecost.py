"""What a line of the user's code costs, and in which part of a training step it ran."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LineCost:
    """What one line of the user's code costs, from stack samples of the training thread."""

    file: str
    line: int
    function: str
    text: str
    phase: str
    """Phase in which the samples fell; `other` where in none."""
    share: float
    """Share of the run's sampled wall-clock, 0..1."""
    in_torch: bool = False
    """The samples' innermost Python frame was inside torch: compute called by this line, not Python of the line."""
    in_worker: bool = False
    """Seen in a loader's worker process; `share` is then of the workers' fetch time, not of the loop's wall-clock."""
    before_backward: bool = False
    """Seen in `other` between a forward and the backward after it, where losses are computed."""
    looped: bool = False
    """Reached through a loop inside of the training step, as its file's text tells."""
    no_grad: bool = False
    """Seen in a forward in training mode that recorded no gradients."""
    beside: str = ""
    """`step`: it ran in a statement of the training step that trains nothing; `model`: in one of a forward that the
    output does not depend on; as the texts of their files tell (see `beside`)."""
