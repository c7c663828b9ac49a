"""Finds a plan that cures a case: tries the costliest finding first, then measures the settings of the plan again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from gpu_doctor import formatting
from gpu_doctor.cell import Fix
from gpu_doctor.diagnosis import Diagnosis, Safety, diagnose
from gpu_doctor.recording import CLEAN, Settings, SettingValue, describe
from gpu_doctor.trials import loss_reasons, race, run
from gpu_doctor.trials.beforehand import beforehand
from gpu_doctor.trials.candidates import WORTH, Move, joined, moves
from gpu_doctor.trials.compare.effect import AS_PASTED, BY_SETTINGS, Effect
from gpu_doctor.trials.interrupts import uninterrupted
from gpu_doctor.trials.plan import Plan, Rung
from gpu_doctor.trials.results import left_behind, places, training_changes
from gpu_doctor.trials.rounds import MOST_PAIRS
from gpu_doctor.trials.runner import Runner
from gpu_doctor.trials.snapshot.tensors import SnapshotTooLarge

TOGETHER: Final = "all together"
"""Label of the row of the last trial, which measures all settings of the plan against the code as written."""
AGAIN: Final = "measured again"
"""Label of that row if the plan has only one step."""
NOT_VERIFIED: Final = "The kept settings are not verified: they were not measured again against the code as written."
PAIRS: Final = 6
"""Largest number of pairs in each trial but the last: a treatment makes many trials, which only decide whether a gain
is worth keeping."""


def treat(
    case: Runner,
    max_trials: int,
    *,
    steps: int,
    seconds: float,
    changes_training: bool,
) -> Plan:
    """Tries the knob of the costliest finding, keeps it if the trial shows a gain, diagnoses the rest, and so on.

    The plan's settings are then measured again against the code as written, and only that figure is the plan's, because
    the best of several trials looks better than it is. This last trial runs the changed text of the cell if the whole
    change lies in the cell, else the cell as written under knobs. Settings that it does not confirm are dropped.

    Args:
        case: case to treat. If it was never run, its code is first measured as written, in a trial that leaves no
            trace.
        max_trials: largest number of trials. One of them is always reserved for the last measurement; a limit of 1
            allows that trial in addition.
        steps: steps of each side of a trial.
        seconds: time limit of each trial.
        changes_training: True to also try settings that change the training (batch size, AMP).

    Returns:
        The plan, which is also the newest of `case.plans`; code and namespace stay unchanged. If no trial may begin,
        its `reason` says why.

    Raises:
        ValueError: `steps` or `seconds` is not positive.
        KeyboardInterrupt: The treatment was interrupted; everything is restored. The plan so far is the newest of
            `case.plans`, if the code as written was measured.
    """
    run.check_budget(steps, seconds)
    allowed = {Safety.SAFE, Safety.CHANGES_TRAINING} if changes_training else {Safety.SAFE}
    if refusal := beforehand(case).refusal:
        case.plans.append(Plan({}, 1.0, (), "", reason=refusal))
        return case.plans[-1]
    # The treatment starts from the code as written: the newest diagnosis may belong to a run under other settings.
    base, lost = case.baseline, tuple[str, ...]()
    if base is None:
        try:
            base, lost = case.measured_aside(steps, seconds)
        except SnapshotTooLarge as too_large:
            case.plans.append(Plan({}, 1.0, (), "", reason=str(too_large)))
            return case.plans[-1]
        if base.outcome == "refused":
            case.plans.append(Plan({}, 1.0, (), "", reason=base.reason))
            return case.plans[-1]
    diagnosis = diagnose(base)
    climb = _Climb(case, diagnosis, allowed, max_trials, steps, seconds, lost)
    try:
        while climb.goes_on() and (move := climb.next_move()) is not None:
            climb.tries(move)
        climb.verify()
    except KeyboardInterrupt:
        with uninterrupted():  # what was measured until then is not lost
            climb.cut_short()
            case.plans.append(_plan(case, climb, diagnosis))
        raise
    case.plans.append(_plan(case, climb, diagnosis))
    return case.plans[-1]


def _plan(case: Runner, climb: _Climb, diagnosis: Diagnosis) -> Plan:
    return Plan(
        settings=climb.kept,
        speedup=climb.speedup,
        effects=tuple(climb.effects),
        code=case.code(climb.kept),
        fix=_fix(case, climb.kept),
        verified=climb.verified,
        by_hand=(*dict.fromkeys(climb.left_by_hand), *_by_hand(climb.diagnosis)),
        reason="" if climb.effects else _why(case, diagnosis),
        waterfall=tuple(climb.rungs),
        notes=(
            *places(climb.effects),
            *climb.notes,
            *climb.by_settings(),
            *training_changes(climb.kept),
            *left_behind(climb.effects, climb.lost),
        ),
    )


@dataclass
class _Climb:
    """A treatment in progress."""

    case: Runner
    diagnosis: Diagnosis
    """Diagnosis of the newest run under the settings kept so far."""
    allowed: set[Safety]
    max_trials: int
    steps: int
    seconds: float
    lost: tuple[str, ...]
    """Clauses on what could not be restored after the code as written was measured."""
    kept: dict[str, Any] = field(default_factory=dict)
    speedup: float = 1.0
    effects: list[Effect] = field(default_factory=list)
    tried: list[dict[str, Any]] = field(default_factory=list)
    """Settings of each trial so far."""
    rungs: list[Rung] = field(default_factory=lambda: [Rung("as written", {}, 1.0)])
    notes: list[str] = field(default_factory=list)
    left_by_hand: list[str] = field(default_factory=list)
    """Sentences on gains that were dropped because their losses differ for no known reason."""
    verified: str = ""
    """Way in which the last trial ran the plan, as in `Effect`; empty if nothing was confirmed."""
    why_by_settings: str = ""
    """Reason why the last trial did not run the changed cell; empty if it did."""

    @property
    def trials_remaining(self) -> int:
        """Returns the trials left for moves; one is reserved for the last measurement."""
        return max(self.max_trials - 1, 1) - len(self.effects)

    def goes_on(self) -> bool:
        """True if another move may be tried."""
        barred = self.case.reached.keys() - self.case.allowed
        return self.trials_remaining > 0 and not self.case.stopped and not barred

    def next_move(self) -> Move | None:
        """Returns the next move to try; None if nothing is worth a trial."""
        return next(moves(self.diagnosis, self.allowed, self.kept, self.tried), None)

    def tries(self, move: Move) -> None:
        """Tries a move, and keeps its settings if the trial shows a gain."""
        candidate, before = joined(self.kept, move.settings), len(self.case.effects)
        self.tried.append(candidate)
        try:
            effect = self._trial(candidate, self.kept)
        except KeyboardInterrupt:
            self.effects += self.case.effects[before:]
            raise
        self.effects.append(effect)
        if self._gains(effect):
            self._keep(effect.speedup or 1.0, candidate, effect)

    def _trial(self, settings: dict[str, Any], against: dict[str, Any], pairs: int = PAIRS) -> Effect:
        budget: dict[str, Any] = {"steps": self.steps, "seconds": self.seconds, "pairs": pairs}
        return race.tried(self.case, settings, against=against, **budget)

    def _keep(self, gain: float, candidate: dict[str, Any], effect: Effect) -> None:
        added: dict[str, SettingValue] = {
            name: value for name, value in candidate.items() if self.kept.get(name) != value
        }
        self.speedup *= gain
        self.rungs.append(self._rung(describe(added), added, gain, effect))
        self.kept = candidate
        for _, recording in reversed(self.case.trials):
            if dict(recording.settings) == candidate:
                self.diagnosis = diagnose(recording)
                return

    def _rung(self, label: str, settings: Settings, gain: float, effect: Effect) -> Rung:
        losses = loss_reasons.loss_note(effect, self.diagnosis.vitals.setup)
        said = (effect.loss_verdict, effect.loss_first_step, losses)
        return Rung(label, settings, self.speedup, gain, effect.low, effect.high, *said, verified=effect.verified)

    def _gains(self, effect: Effect) -> bool:
        """True if a trial showed a gain to keep; losses that differ for no known reason leave it to the user."""
        if not _gains(effect):
            return False
        if not loss_reasons.differs(effect) or loss_reasons.reason(effect, self.diagnosis.vitals.setup):
            return True
        self.left_by_hand.append(loss_reasons.gain_left_to_user(effect))
        return False

    def verify(self) -> None:
        """Measures the kept settings again against the code as written, and drops them if they are not confirmed.

        If all settings together are not confirmed, the first step alone is tried, if a trial remains.
        """
        wholes = [self.rungs, self.rungs[:2]] if len(self.rungs) > 2 else [self.rungs] if self.kept else []
        for rungs in wholes:
            if rungs is not wholes[0]:
                if self.max_trials <= len(self.effects):
                    break
                self.kept, self.speedup, self.rungs = dict(rungs[1].settings), rungs[1].speedup, rungs
            effect = None if self.case.stopped else self._afresh()
            if effect is None or effect.outcome == "stopped":
                self.notes.append(NOT_VERIFIED)
                return
            if self._gains(effect):
                self.speedup, self.verified = effect.speedup or 1.0, effect.verified
                label = TOGETHER if len(rungs) > 2 else AGAIN
                self.rungs = [*rungs, self._rung(label, dict(self.kept), self.speedup, effect)]
                return
            self.notes.append(self._unconfirmed(effect))
        if wholes:
            self.kept, self.speedup, self.rungs = {}, 1.0, self.rungs[:1]

    def _afresh(self) -> Effect:
        """Runs the last trial, with the changed cell or the cell as written under knobs."""
        before = len(self.case.effects)
        try:
            effect = self._trial(self.kept, {}, MOST_PAIRS)
        except KeyboardInterrupt:
            self.effects += self.case.effects[before:]
            raise
        known = [number for number, other in enumerate(self.case.effects) if other is effect]
        self.why_by_settings = next(iter(self.case.written(self.kept).reasons.values()), "")
        effect = replace(effect, verified=BY_SETTINGS if self.why_by_settings else AS_PASTED)
        for number in known:
            self.case.effects[number] = effect
        self.effects.append(effect)
        return effect

    def _unconfirmed(self, effect: Effect) -> str:
        """Returns the sentence on a gain that was not confirmed by the second measurement."""
        again = formatting.speedup(effect.speedup, effect.low, effect.high, "no speed was measured")
        why = f": {effect.reason}" if effect.reason else ""
        if _gains(effect):
            why = f", but its {effect.loss_words}"
        return (
            f"{describe(self.kept)} looked {formatting.factor(self.speedup)} as fast and was not confirmed when it was "
            f"measured again against the code as written ({again}{why})."
        )

    def by_settings(self) -> tuple[str, ...]:
        """Says why the plan was verified by knobs rather than by running the changed cell."""
        if self.verified != BY_SETTINGS:
            return ()
        return (f"Verified by settings, not by running the changed cell. {self.why_by_settings}",)

    def cut_short(self) -> None:
        """Says that an interrupt came before the end."""
        self.notes.append("The treatment was interrupted.")
        if self.kept and not self.verified:
            self.notes.append(NOT_VERIFIED)


def _gains(effect: Effect) -> bool:
    """True if a trial showed a gain that is worth keeping; a loss that breaks is no cure, however fast."""
    broken = loss_reasons.breaks(effect)
    return effect.verdict == "faster" and (effect.speedup or 0.0) >= WORTH and effect.outcome in CLEAN and not broken


def _fix(case: Runner, kept: dict[str, Any]) -> Fix:
    """Writes the plan into the user's cells; an error becomes a note, so that the trials are not lost."""
    try:
        return case.fix(kept) if kept else Fix()
    except Exception as error:
        note = f"The change could not be written into your cells ({type(error).__name__}: {error})."
        return Fix(settings=kept, notes=(note,), paste=case.code(kept), complete=False)


def _why(case: Runner, diagnosis: Diagnosis) -> str:
    """Returns why there was nothing to try: the code fails by itself, or no knob helps."""
    base = case.baseline
    if case.stopped:
        return "it was stopped."
    if base is not None and base.outcome in ("failed", "out-of-memory"):
        return f"the code as written fails with {base.reason}. Fix it first."
    return diagnosis.verdict


def _by_hand(diagnosis: Diagnosis) -> tuple[str, ...]:
    prescriptions = (
        prescription for finding in (*diagnosis.findings, *diagnosis.hints) for prescription in finding.prescriptions
    )
    return tuple(
        dict.fromkeys(prescription.text for prescription in prescriptions if prescription.safety is Safety.BY_HAND)
    )
