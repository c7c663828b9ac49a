"""Defines the result of a check before a trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpu_doctor.formatting import clean


@dataclass(frozen=True)
class Beforehand:
    """The result of checks before a trial: whole sentences for the user, without duplicates."""

    refusals: tuple[str, ...] = ()
    """Reasons why no trial may begin; each names the variable, file or process and says what to do."""
    notes: tuple[str, ...] = ()
    """Sentences on what a trial does differently from a run, or cannot see."""
    lost: tuple[str, ...] = ()
    """Sentences on what a trial cannot restore, or repeats and cannot undo."""
    asks: Mapping[str, str] = field(default_factory=dict)
    """Refusals that `allow=` lifts: name of the permission -> sentence."""

    @property
    def refusal(self) -> str:
        """All refusals as one text; empty if a trial may begin."""
        return " ".join(self.refusals)


def unrestorable(names: Sequence[str], most: int = 6) -> str:
    """Returns a clause, `a trial cannot put back: it (generator)`, with at most `most` names and a count."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"a trial cannot put back: {', '.join(clean(name, 80) for name in names[:most])}{more}"


def not_copied(names: Sequence[str], most: int = 3) -> str:
    """Returns a clause, `large data is not copied: train (an array of 2.0 GB); ...`, with the first `most` names."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    named = ", ".join(clean(name, 80) for name in names[:most])
    return f"large data is not copied: {named}{more}; changes to it are listed, not undone"
