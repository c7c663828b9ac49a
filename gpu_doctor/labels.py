"""Names shown to users: phases, bottlenecks, outcomes; headings and labels of the static result and the panel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

PHASE_LABELS: Final[Mapping[str, str]] = {
    "data_wait": "data wait",
    "transfer": "copy",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "sync": "sync",
    "evaluation": "evaluation",
    "other": "other",
    "ours": "gpu_doctor",
}
"""Phase -> its name in bars, tables and legends."""

BOTTLENECK_LABELS: Final[Mapping[str, str]] = {
    "input": "input-bound",
    "transfer": "transfer-bound",
    "host": "host-bound",
    "compute": "compute-bound",
    "memory": "memory-bound",
    "communication": "communication-bound",
    "unknown": "no bottleneck named",
}

OUTCOME_LABELS: Final[Mapping[str, str]] = {
    "completed": "completed",
    "budget-reached": "budget reached",
    "interrupted": "interrupted",
    "stopped": "stopped",
    "out-of-memory": "did not fit into memory",
    "failed": "failed",
    "refused": "refused",
}


@dataclass(frozen=True)
class Labels:
    """Labels that both the static result and the panel use, in lower case; sent with the panel's state."""

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
    look: str = "deep look"
    not_judged: str = "not judged on this machine"


LABELS: Final = Labels()


def heading(label: str) -> str:
    """Capitalises a label, or other words, for the start of a line."""
    return label[:1].upper() + label[1:]
