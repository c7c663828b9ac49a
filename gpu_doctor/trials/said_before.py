"""What a check has to say before a trial begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Beforehand:
    """Whole sentences for people, each once."""

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
