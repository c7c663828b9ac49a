"""The plan that cures a case: climb by verified trials, dearest finding first, until nothing is worth keeping."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gpu_doctor import trial
from gpu_doctor.diagnosis import Diagnosis, diagnose
from gpu_doctor.effect import Effect
from gpu_doctor.fixes import Fix
from gpu_doctor.recording import Settings
from gpu_doctor.rules.rule import Prescription, Safety

if TYPE_CHECKING:
    from gpu_doctor.casefile import Case

WORTH: Final = 1.03
"""A plan keeps a setting from this verified speed-up on."""
TRIES_A_KNOB: Final = 2
"""A knob is tried with at most two values: the first advice, and one correction once its effect was seen."""


@dataclass(frozen=True)
class Plan:
    """What `Case.treat` arrived at."""

    settings: Mapping[str, Any]
    """The knob values that were verified and kept."""
    speedup: float
    """Samples/s with them over samples/s as written; the product of the verified effects."""
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

    def __str__(self) -> str:
        tried = (
            "\n".join(f"  {effect}" for effect in self.effects)
            or f"  nothing to try{': ' if self.reason else ''}{self.reason}"
        )
        kept = (str(self.fix) if self.fix.cells else self.code) or "nothing was worth keeping"
        return f"Treatment plan: {self.speedup:.2f}x\n{tried}\nKeep:\n{kept}"


def treat(case: Case, max_trials: int, *, steps: int, seconds: float, changes_training: bool) -> Plan:
    """Tries the dearest finding's knob, keeps it if the trial verifies it, diagnoses what is left, and so on.

    Args:
        case: a case; if it was never run, its code is first measured as written, in a trial that leaves no trace.
        max_trials: trials at most. steps, seconds: of each trial.
        changes_training: also try what changes the training (batch size, AMP).

    Returns:
        The plan; nothing is changed in the code or the namespace.

    Raises:
        ValueError: if steps or seconds are not positive.
    """
    trial.check_budget(steps, seconds)
    allowed = {Safety.SAFE, Safety.CHANGES_TRAINING} if changes_training else {Safety.SAFE}
    kept: dict[str, Any] = {}
    speedup = 1.0
    effects: list[Effect] = []
    tried: list[dict[str, Any]] = []
    # The code as written is what is cured: the newest diagnosis may be that of a run under other settings.
    diagnosis = diagnose(case.baseline or case.measured(steps=steps, seconds=seconds))
    for _ in range(max_trials):
        step = _next_step(diagnosis, allowed, kept, tried)
        if step is None or case.stopped:
            break
        candidate = {**kept, **step.settings}
        tried.append(candidate)
        effect = case.trial(candidate, steps=steps, seconds=seconds, against=kept)
        effects.append(effect)
        if effect.verdict == "faster" and (effect.speedup or 0.0) >= WORTH:
            kept, speedup = candidate, speedup * (effect.speedup or 1.0)
            diagnosis = diagnose(case.trials[-1][1])
    return Plan(
        settings=kept,
        speedup=speedup,
        effects=tuple(effects),
        code=case.code(kept),
        fix=_fix(case, kept),
        by_hand=_by_hand(diagnosis),
        reason="" if effects else _why(case, diagnosis),
    )


def _next_step(
    diagnosis: Diagnosis | None, allowed: set[Safety], kept: Settings, tried: list[dict[str, Any]]
) -> Prescription | None:
    for finding in diagnosis.findings if diagnosis is not None else ():
        for prescription in finding.prescriptions:
            candidate = {**kept, **prescription.settings}
            turns = sum(name in one for one in tried for name in prescription.settings)
            new = candidate not in (kept, *tried) and turns < TRIES_A_KNOB
            if prescription.settings and prescription.safety in allowed and new:
                return prescription
    return None


def _fix(case: Case, kept: dict[str, Any]) -> Fix:
    """The plan written into the user's cells; minutes of trials are not lost where their text defeats us."""
    try:
        return case.fix(kept) if kept else Fix()
    except Exception as error:
        said = f"The change of your cells could not be worked out ({type(error).__name__}: {error})."
        return Fix(settings=kept, notes=(said,), paste=case.code(kept), complete=False)


def _why(case: Case, diagnosis: Diagnosis) -> str:
    """Why there was nothing to try: the code fails by itself, or the verdict leaves nothing to turn."""
    base = case.baseline
    if base is not None and base.outcome in ("failed", "out-of-memory"):
        return f"the code as written ended with {base.reason}. Make it run through first."
    return diagnosis.verdict


def _by_hand(diagnosis: Diagnosis | None) -> tuple[str, ...]:
    found = diagnosis.findings if diagnosis is not None else ()
    return tuple(p.text for finding in found for p in finding.prescriptions if p.safety is Safety.BY_HAND)
