"""The plan that cures a case: climb by verified trials, dearest finding first, until nothing is worth keeping."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from gpu_doctor.cell import Fix
from gpu_doctor.diagnosis import Diagnosis, Safety, diagnose
from gpu_doctor.recording import Settings, SettingValue, describe
from gpu_doctor.trials import executors, knobs, loss_reasons, run
from gpu_doctor.trials.candidates import WORTH as WORTH
from gpu_doctor.trials.candidates import Move, Tried, joined, moves
from gpu_doctor.trials.compare.effect import Effect
from gpu_doctor.trials.executors import Executor
from gpu_doctor.trials.results import Behind
from gpu_doctor.trials.results import Plan as Plan
from gpu_doctor.trials.results import Rung as Rung
from gpu_doctor.trials.runner import Runner

TOGETHER: Final = "all together"
"""Label of the row that tells of the last trial: everything that was kept against the code as written."""
NOT_AGAIN: Final = "The kept settings were not measured together against the code as written."
WAVES: Final = 6
"""Workers that start together deliver together: a trial lasts for so many rounds of all of them, or it measures how the
first ones came in (16 workers in 50 steps looked slower than 12 where they were 20 % faster)."""
PAIRS: Final = 6
"""Pairs of runs of each trial, at most: a climb makes many, and asks of each only whether a gain is worth keeping."""
LONGER: Final = 3
"""A trial that left a gain open is made once more with so many times the steps."""
_CLEAN: Final = ("completed", "budget-reached")


def treat(
    case: Runner,
    max_trials: int,
    *,
    steps: int,
    seconds: float,
    changes_training: bool,
    executor: Executor | None = None,
) -> Plan:
    """Tries the dearest finding's knob, keeps it if the trial verifies it, diagnoses what is left, and so on.

    What was reached in several steps is tried once more as a whole against the code as written.

    Args:
        case: a case; if it was never run, its code is first measured as written, in a trial that leaves no trace.
        max_trials: trials at most, the last one included. steps, seconds: of each trial; more steps where many workers
            need them to come into their stride.
        changes_training: also try what changes the training (batch size, AMP).
        executor: where the trials run; None = in this kernel, one after another. A wider one tries several moves at
            once, of which the best is kept and the clearly worse are given up early.

    Returns:
        The plan, also the newest of `case.plans`; nothing is changed in the code or the namespace.

    Raises:
        ValueError: if steps or seconds are not positive.
        KeyboardInterrupt: if it is interrupted, after everything was put back; the plan so far is the newest of
            `case.plans`, once the code as written was measured.
    """
    run.check_budget(steps, seconds)
    allowed = {Safety.SAFE, Safety.CHANGES_TRAINING} if changes_training else {Safety.SAFE}
    # The code as written is what is cured: the newest diagnosis may be that of a run under other settings.
    base, behind = case.baseline, Behind()
    if base is None:
        base, left = case.measured_aside(steps, seconds)
        behind = Behind(base.written or (), left)
    diagnosis = diagnose(base)
    where = executors.InKernel() if executor is None else executor
    climb = _Climb(case, diagnosis, allowed, max_trials, steps, seconds, where, behind)
    try:
        while climb.goes_on() and (batch := climb.next_moves()):
            climb.tries(batch)
        climb.together()
    except KeyboardInterrupt:
        with run.uninterrupted():  # what was verified until then is not lost
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
        by_hand=(*dict.fromkeys(climb.left_by_hand), *_by_hand(climb.diagnosis)),
        reason="" if climb.effects else _why(case, diagnosis),
        waterfall=tuple(climb.rungs),
        notes=(*climb.notes, *_changes(climb.kept), *climb.behind.told(climb.effects)),
    )


def _changes(kept: Settings) -> tuple[str, ...]:
    """A sentence for each setting that is kept and changes the training: how, such as the learning rate to scale."""
    changing = (knobs.known(name) for name in kept if knobs.known(name).safety is Safety.CHANGES_TRAINING)
    return tuple(f"{knob.name} changes the training: {knob.changes}" for knob in changing)


def _next_step(diagnosis: Diagnosis, allowed: set[Safety], kept: Settings, tried: list[Tried]) -> Move | None:
    """The first move that is worth a trial; None where there is none left."""
    return next(moves(diagnosis, allowed, kept, tried), None)


@dataclass
class _Climb:
    """A treatment under way."""

    case: Runner
    diagnosis: Diagnosis
    """Of the newest run under what is kept."""
    allowed: set[Safety]
    max_trials: int
    steps: int
    seconds: float
    executor: Executor
    behind: Behind
    kept: dict[str, Any] = field(default_factory=dict)
    speedup: float = 1.0
    effects: list[Effect] = field(default_factory=list)
    tried: list[Tried] = field(default_factory=list)
    rungs: list[Rung] = field(default_factory=lambda: [Rung("as written", {}, 1.0)])
    notes: list[str] = field(default_factory=list)
    left_by_hand: list[str] = field(default_factory=list)
    """Gains that are not kept as their losses differ for no known reason."""

    @property
    def left(self) -> int:
        """Trials left for moves: from the first that was kept on one is put by for all together."""
        return self.max_trials - len(self.effects) - (len(self.rungs) > 1)

    def goes_on(self) -> bool:
        """Whether another move may be tried."""
        return self.left > 0 and not self.case.stopped

    def next_moves(self) -> list[Move]:
        """As many moves as run at once; none where nothing is worth a trial any more."""
        wide = min(executors.width_for(self.executor, self.case), self.left)
        found: list[Move] = []
        pending: list[Tried] = []
        while len(found) < wide:
            move = _next_step(self.diagnosis, self.allowed, self.kept, [*self.tried, *pending])
            if move is None:
                break
            found.append(move)
            pending.append(Tried(joined(self.kept, move.settings), tuple(move.settings), None))
        return found

    def tries(self, batch: list[Move]) -> None:
        """Gives moves their trials and keeps the best that is verified."""
        candidates = [joined(self.kept, move.settings) for move in batch]
        self._tried(batch, candidates)
        if len(batch) == 1 and _nearly(self.effects[-1]) and self.goes_on():
            del self.tried[-1]  # the longer trial speaks for both: a gain that is not kept here is not found again
            self._tried(batch, candidates, LONGER)

    def _tried(self, batch: list[Move], candidates: list[dict[str, Any]], times: int = 1) -> None:
        before = len(self.case.effects)
        try:
            effects = self._trials(candidates, self.kept, times)
        except KeyboardInterrupt:
            with run.uninterrupted():
                self._judges(batch, candidates, self.case.effects[before:])
            raise
        self._judges(batch, candidates, effects)

    def _judges(self, batch: list[Move], candidates: list[dict[str, Any]], effects: list[Effect]) -> None:
        """Keeps the best of what was tried; an interrupt leaves the last ones without an effect."""
        best: tuple[float, dict[str, Any], Effect] | None = None
        given_up: list[Tried] = []
        for move, candidate, effect in zip(batch, candidates, effects, strict=False):
            self.effects.append(effect)
            gained = self._gains(effect)
            if not gained and len(batch) > 1 and _given_up(effect):
                given_up.append(Tried(candidate, tuple(move.settings), None))
                continue
            lost = not gained and (effect.speedup or 0.0) < WORTH
            self.tried.append(Tried(candidate, tuple(move.settings), gained, lost))
            if gained and (best is None or (effect.speedup or 0.0) > best[0]):
                best = effect.speedup or 1.0, candidate, effect
        if best is not None:  # else what was given up for one that is not kept has its turn again
            self.tried += given_up
            self._keep(*best)

    def _trials(self, candidates: list[dict[str, Any]], against: dict[str, Any], times: int = 1) -> list[Effect]:
        workers = max(int(one.get("num_workers", 0)) for one in candidates)
        steps = times * max(self.steps, WAVES * workers)
        budget: dict[str, Any] = {"steps": steps, "seconds": self.seconds, "against": against}
        racing = len(candidates) > 1
        return executors.tried(self.executor, self.case, candidates, racing=racing, pairs=PAIRS, **budget)

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
        losses = loss_reasons.told(effect, self.diagnosis.vitals.setup.layers)
        said = (effect.loss_verdict, effect.loss_first_step, losses)
        return Rung(label, settings, self.speedup, gain, effect.low, effect.high, *said)

    def _gains(self, effect: Effect) -> bool:
        """Whether a trial verified a gain to keep; one whose losses differ for no known reason is left for the hand."""
        if not _gains(effect):
            return False
        if not loss_reasons.differs(effect) or loss_reasons.reason(effect, self.diagnosis.vitals.setup.layers):
            return True
        self.left_by_hand.append(loss_reasons.left(effect))
        return False

    def together(self) -> None:
        """Tries all that was kept once against the code as written, if it was reached in several steps."""
        if len(self.rungs) < 3:
            return
        if self.case.stopped or self.max_trials <= len(self.effects):
            self.notes.append(NOT_AGAIN)
            return
        before = len(self.case.effects)
        try:
            (effect,) = self._trials([self.kept], {})
        except KeyboardInterrupt:
            self.effects += self.case.effects[before:]
            raise
        self.effects.append(effect)
        if self._gains(effect):
            self.speedup = effect.speedup or 1.0
            self.rungs.append(self._rung(TOGETHER, dict(self.kept), self.speedup, effect))
            return
        if effect.outcome == "stopped":
            self.notes.append(NOT_AGAIN)
            return
        first = self.rungs[1]
        why = "their losses differ for no known reason" if _gains(effect) else "they did not"
        self.notes.append(
            f"{describe(self.kept)}: each helped alone; together {why} ({effect}). Only {first.label} is kept: it was "
            "verified against the code as written."
        )
        self.kept, self.speedup, self.rungs = dict(first.settings), first.speedup, self.rungs[:2]

    def cut_short(self) -> None:
        """Says that an interrupt came before the end."""
        self.notes.append("The treatment was interrupted: this was verified before.")
        if len(self.rungs) > 2 and self.rungs[-1].label != TOGETHER:
            self.notes.append(NOT_AGAIN)


def _nearly(effect: Effect) -> bool:
    """Whether a trial measured a gain worth keeping and no loss, but is not sure of it."""
    open_ = effect.verdict == "inconclusive" and effect.outcome in _CLEAN and (effect.speedup or 0.0) >= WORTH
    return open_ and effect.low is not None and effect.low >= 1.0


def _given_up(effect: Effect) -> bool:
    """Whether a trial ended as another move was clearly better, while a gain was still possible: that is no failure."""
    return bool(effect.reason) and effect.outcome in _CLEAN and (effect.high or 0.0) >= WORTH


def _gains(effect: Effect) -> bool:
    """Whether a trial verified a gain that is worth keeping; a loss that breaks is no cure, however fast."""
    broken = loss_reasons.breaks(effect)
    return effect.verdict == "faster" and (effect.speedup or 0.0) >= WORTH and effect.outcome in _CLEAN and not broken


def _fix(case: Runner, kept: dict[str, Any]) -> Fix:
    """The plan written into the user's cells; minutes of trials are not lost where their text defeats us."""
    try:
        return case.fix(kept) if kept else Fix()
    except Exception as error:
        said = f"The change could not be written into your cells ({type(error).__name__}: {error})."
        return Fix(settings=kept, notes=(said,), paste=case.code(kept), complete=False)


def _why(case: Runner, diagnosis: Diagnosis) -> str:
    """Why there was nothing to try: the code fails by itself, or the verdict leaves nothing to turn."""
    base = case.baseline
    if base is not None and base.outcome in ("failed", "out-of-memory"):
        return f"the code as written fails with {base.reason}. Fix it first."
    return diagnosis.verdict


def _by_hand(diagnosis: Diagnosis) -> tuple[str, ...]:
    prescriptions = (one for finding in diagnosis.findings for one in finding.prescriptions)
    return tuple(dict.fromkeys(one.text for one in prescriptions if one.safety is Safety.BY_HAND))
