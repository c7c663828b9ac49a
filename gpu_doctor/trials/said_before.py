"""What a check has to say before a trial begins."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Beforehand:
    """Whole sentences for people, each once."""

    refusals: tuple[str, ...] = ()
    """Why no trial may begin; each names the variable, file or process and says what to do."""
    notes: tuple[str, ...] = ()
    """What a trial does otherwise than a run, or cannot see."""
    lost: tuple[str, ...] = ()
    """What would not come back, or is done again and cannot be undone."""

    @property
    def refusal(self) -> str:
        """All reasons as one text; empty where a trial may begin."""
        return " ".join(self.refusals)
