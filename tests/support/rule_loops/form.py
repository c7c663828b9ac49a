"""How a cause's loops are written down: sick, well, near misses, and loops that only look sick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpu_doctor.diagnosis.rules.rule import Kind
from gpu_doctor.recording import Recording, Settings
from tests.support.recordings import Loop

Run = Loop | Recording | tuple[Loop, ...]
"""A loop or its recording; several loops are the run that is diagnosed and other runs of the same loop."""


@dataclass(frozen=True)
class Sick:
    """A loop with the trouble, and what its diagnosis says; sentences are not part of it, figures and names are."""

    run: Run
    share: float | None = None
    """Share of the wall-clock, 0..1; None for a hint."""
    kind: Kind | None = None
    """Kind, if it is not the cause's usual one."""
    within: float = 0.015
    """Absolute tolerance of `share`."""
    named: tuple[str, ...] | None = None
    """All causes that the diagnosis names, in order; None for this cause alone."""
    risk: bool | None = None
    """True if it is also a problem that may come; None for what is usual of the cause."""
    settings: tuple[Settings, ...] = ()
    """Settings of the prescriptions that have some, in order."""
    gain: float | None = None
    """Speedup by the first prescription: within its forecast's bounds, and within 20 % of it; None for no forecast."""
    cures: tuple[str, ...] = ()
    """Pieces of the prescriptions, mostly of their code."""
    figures: tuple[str, ...] = ()
    """Pieces of headline, evidence and risk: figures with their units, names and lines of the user's."""
    unsaid: tuple[str, ...] = ()
    """Pieces that stand nowhere in the finding."""


@dataclass(frozen=True)
class CauseLoops:
    """A cause's loops."""

    cause: str
    sick: Mapping[str, Sick]
    """By what is special about each; the first is the plain one."""
    near: Mapping[str, Run]
    """Nearest false alarms, by why the cause is not named in them."""
    other: Mapping[str, tuple[Run, tuple[str, ...]]] = field(default_factory=dict)
    """Loops in which other causes are named instead, by what they are; with all that is named, in order."""
    kind: Kind = "lost"
    """Kind of its findings with a share; one without is a hint."""
    risk: bool = False
    """True if its findings are also problems that may come."""
    first: bool = False
    """True if its findings go before all others at any price."""
    bottleneck: str = ""
    """Class of the plain sick loop's bottleneck; empty if it is that of its family, or compute."""
    well: Run = field(default_factory=Loop)
    """A loop like the sick one in which nothing is named."""
