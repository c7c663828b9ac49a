"""Headings and labels of the static result and the live panel: written once, sent with the panel's state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Labels:
    """Headings and labels, as they stand within a line but where they never do."""

    product: str = "gpu_doctor"
    as_written: str = "as written"
    baseline: str = "baseline"
    candidate: str = "candidate"
    anatomy: str = "anatomy of a step"
    losses: str = "loss over samples seen"
    treatment: str = "treatment"
    changed: str = "your code with these settings"
    dropped: str = "tried, not kept"
    by_hand: str = "left to do by hand"
    paste: str = "To paste by hand:"
    sweep: str = "sweep"
    largest: str = "largest batch"
    hints: str = "without a price: risks, and what is worth a trial"
    not_judged: str = "not judged on this machine"
    steps: str = "steps of each side of a trial"
    seconds: str = "seconds of a trial"
    use_it: str = "use it"
    asking: str = "asking for a forecast …"
    none_together: str = "no forecast for these together: try it"
    no_answer: str = "no forecast yet: the kernel is busy"
    interrupt: str = "interrupt the kernel (Kernel menu, or the stop button)"


LABELS: Final = Labels()


def heading(label: str) -> str:
    """A label, or other words, that begin a line."""
    return label[:1].upper() + label[1:]
