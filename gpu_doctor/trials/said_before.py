"""Defines the result of a check before a trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpu_doctor.formatting import clean


@dataclass(frozen=True)
class Beforehand:
    """The result of checks before a trial: whole sentences for people, each once."""

    refusals: tuple[str, ...] = ()
    """Why no trial may begin; each names the variable, file or process and says what to do."""
    notes: tuple[str, ...] = ()
    """What a trial does otherwise than a run, or cannot see."""
    lost: tuple[str, ...] = ()
    """What would not come back, or is done again and cannot be undone."""
    asks: Mapping[str, str] = field(default_factory=dict)
    """Those of the refusals that `allow=` lifts: the name that it takes -> the sentence."""

    @property
    def refusal(self) -> str:
        """All reasons as one text; empty where a trial may begin."""
        return " ".join(self.refusals)


def unrestorable(names: Sequence[str], most: int = 6) -> str:
    """`a trial cannot put back: it (generator)`; of many names, the first and how many more."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"a trial cannot put back: {', '.join(clean(one, 80) for one in names[:most])}{more}"


def not_copied(names: Sequence[str], most: int = 3) -> str:
    """`large data is not copied: train (an array of 2.0 GB); ...`; of many names, the first few."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    named = ", ".join(clean(one, 80) for one in names[:most])
    return f"large data is not copied: {named}{more}; changes to it are listed, not undone"
