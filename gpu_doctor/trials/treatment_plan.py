"""What a treatment arrives at: the settings to keep, the waterfall of verified gains, the code, what is left to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from gpu_doctor import formatting
from gpu_doctor.cell.fix import Fix
from gpu_doctor.display import Shown
from gpu_doctor.recording import SettingValue
from gpu_doctor.trials.compare.effect import Effect


@dataclass(frozen=True)
class Rung:
    """One step of the waterfall: what was added, what it gave, and how fast the loop is with all kept so far."""

    label: str
    """`as written`, or what was turned, such as `num_workers=8`; the last may be `all together`."""
    settings: Mapping[str, SettingValue]
    """What this step added or changed; all that is kept where it is `all together`."""
    speedup: float
    """Samples/s with all that is kept so far over samples/s as written."""
    gain: float | None = None
    """What this trial measured, candidate over baseline; None for the first row."""
    low: float | None = None
    """Lower end of the 95 % interval of `gain`."""
    high: float | None = None
    loss_verdict: str | None = None
    """Of this trial's losses, as in `Effect`: equal, within-rounding, different, ...; None = nothing to compare."""
    loss_first_step: int | None = None
    """First step (from 1) at which they differ."""
    losses: str = ""
    """The same in words, with the reason where they differ."""


@dataclass(frozen=True)
class Plan(Shown):
    """What `Case.treat` arrived at."""

    settings: Mapping[str, Any]
    """The knob values that were verified and kept."""
    speedup: float
    """Samples/s with them over samples/s as written: of the trial of all together where there was one, else the
    product of the verified effects."""
    effects: tuple[Effect, ...]
    """Every trial, in order, kept or not."""
    code: str
    """The lines to paste."""
    fix: Fix = field(default_factory=Fix)
    """The user's own cells with the settings written in."""
    by_hand: tuple[str, ...] = ()
    """What is left that no knob can do, dearest first."""
    reason: str = ""
    """Why nothing was tried; empty if something was."""
    waterfall: tuple[Rung, ...] = ()
    """The verified gains in the order in which they were kept; the first row is the code as written, 1.0."""
    notes: tuple[str, ...] = ()
    """Sentences on how the treatment ended: what could not be verified, what was left untried, what stays of the trials
    (files that were written, what could not be put back)."""

    @property
    def left_by_hand(self) -> tuple[str, ...]:
        """The same as `by_hand`: what is left that no knob can do, dearest first."""
        return self.by_hand

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data (strings, numbers, lists, dicts, None), ready for JSON."""
        return {
            "settings": dict(self.settings),
            "speedup": self.speedup,
            "waterfall": [asdict(one) for one in self.waterfall],
            "effects": [effect.to_dict() for effect in self.effects],
            "code": self.code,
            "diff": self.fix.diff,
            "by_hand": list(self.by_hand),
            "reason": self.reason,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Behind:
    """What measuring the code as written left behind; empty where it had been run."""

    written: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

    def told(self, effects: Sequence[Effect]) -> tuple[str, ...]:
        """Sentences on that, and on what the trials left behind."""
        written = (path for one in effects for path in one.written)
        left = (clause for one in effects for clause in one.not_restored)
        return formatting.left_behind((*self.written, *written), (*self.left, *left))
