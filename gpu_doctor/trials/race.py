"""Tries settings from one stored state, and concludes a trial wherever its runs were made.

Every candidate is compared with a baseline that ran next to it (A B, B A, ...), never with one from minutes ago.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

from gpu_doctor import formatting
from gpu_doctor.diagnosis import Forecast, judged
from gpu_doctor.diagnosis.forecast.forecast import forecast
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import Recording, Settings, Setup
from gpu_doctor.trials import arguments, knobs, run
from gpu_doctor.trials.beforehand import beforehand
from gpu_doctor.trials.compare.effect import Effect, compare, without_losses
from gpu_doctor.trials.interrupts import uninterrupted
from gpu_doctor.trials.knobs.knob import Refused
from gpu_doctor.trials.rounds import MOST_PAIRS
from gpu_doctor.trials.runner import Aside, Runner
from gpu_doctor.trials.snapshot.tensors import SnapshotTooLarge


@dataclass
class Entry:
    """A candidate with its runs: `bases[i]` and `candidates[i]` ran next to each other."""

    settings: dict[str, Any]
    bases: list[Recording] = field(default_factory=list)
    candidates: list[Recording] = field(default_factory=list)
    going: bool = True
    """True while another pair is worth its time."""
    running: bool = False
    """True while a machine of a sweep runs it."""
    refusal: str = ""
    """Reason why it was not started; empty if it was."""
    failure: str = ""
    """Reason why there is nothing to compare, if no recording has it as its outcome, such as a lost machine."""
    failed_as: str = "failed"
    """Outcome of such a failure."""
    dropped: str = ""
    """Reason why it was stopped before its interval was clear; empty if it was not."""
    stopped: bool = False
    """True if Stop was pressed before it was decided."""
    aside: Aside | None = None
    """State from which its trials ran; None on another machine, and if no trial began."""
    seconds: float = 0.0
    """Duration of its trial, in seconds."""
    seen: tuple[Recording, ...] = ()
    """Both sides of every trial before it, for the forecast, which must not use its own outcome."""
    _judged: tuple[int, Effect] | None = None

    @property
    def effect(self) -> Effect | None:
        """Returns the result of the pairs so far; None before the first."""
        made = len(self.bases) + len(self.candidates)
        if not self.bases or not self.candidates:
            return None
        if self._judged is None or self._judged[0] != made:
            self._judged = made, compare(self.bases, self.candidates)
        return self._judged[1]


def tried(
    case: Runner,
    settings: Settings,
    *,
    steps: int,
    seconds: float,
    pairs: int = MOST_PAIRS,
    against: Settings | None = None,
) -> Effect:
    """Tries settings against one baseline, in turns, and puts everything back.

    Args:
        case: case whose code runs, in its own namespace.
        settings: settings to try.
        against: settings of the baseline side; None for the code as written.
        steps: steps of one side of a pair.
        seconds: time limit of the whole trial.
        pairs: largest number of pairs.

    Returns:
        The effect, which is also stored in `case.effects`.

    Raises:
        KeyboardInterrupt: The trial was interrupted; everything is restored. `case.effects` has what was measured.
        ValueError: `steps`, `seconds` or `pairs` is not positive.
        Busy: A run is already being recorded in this process.
    """
    against = begun(against, steps, seconds, pairs)
    begin = time.perf_counter()
    entry = entered(case, settings, refused=beforehand(case).refusal)
    if entry.going and (refusal := case.unturnable(entry.settings)):
        entry.refusal, entry.going = refusal, False
    try:
        if entry.going and not case.stopped:
            _raced(case, entry, against, steps, seconds, pairs)
    except SnapshotTooLarge as too_large:
        entry.refusal = str(too_large)
    except BaseException:  # an interrupt, or an error of ours
        with uninterrupted():  # what was measured until then is not lost
            entry.seconds = time.perf_counter() - begin
            concluded(case, entry, against)
        raise
    if not entry.refusal:
        entry.seconds = time.perf_counter() - begin
    return concluded(case, entry, against)


def begun(against: Settings | None, steps: int, seconds: float, pairs: int = MOST_PAIRS) -> dict[str, Any]:
    """Checks that a trial can begin: valid budget, and nothing else being recorded.

    Returns:
        The settings of the baseline side.

    Raises:
        ValueError: `steps`, `seconds` or `pairs` is not positive.
        Busy: A run is already being recorded in this process.
    """
    arguments.whole(pairs, "pairs", MOST_PAIRS)
    run.check_start(steps, seconds, "start the trial")
    return knobs.as_settings(against)


def entered(case: Runner, settings: Settings, found: Setup | None = None, refused: str = "") -> Entry:
    """Returns a new candidate, which is refused at once if the loop does not support its settings.

    Args:
        case: case whose code runs.
        settings: settings of the candidate.
        refused: reason why no trial of the case may begin; empty if one may.
        found: setup of the loop on the machine where it will run, instead of the case's own; an empty setup if nothing
            is known yet.
    """
    entry = Entry(knobs.as_settings(settings), seen=tuple(side for sides in case.trials for side in sides))
    try:
        if refused:
            raise Refused(refused)
        knobs.allow(entry.settings, found or case.found or Setup())
    except Refused as reason:
        entry.refusal, entry.going = str(reason), False
    return entry


def _raced(case: Runner, entry: Entry, against: Settings, steps: int, seconds: float, pairs: int) -> None:
    """Runs the candidate's pairs and restores everything."""
    with case.aside() as aside:
        entry.aside = aside
        rounds = aside.rounds(bases=entry.bases, candidates=entry.candidates)
        for number in range(1, pairs + 1):
            if case.stopped or not entry.going:
                break
            what = f"round {number}, {_so_far(rounds.effect)}"
            entry.going = rounds.pair(what, against, entry.settings, steps, seconds)


def _so_far(effect: Effect | None) -> str:
    """Returns the figure of the pairs so far: `1.9x (1.6-2.2) so far`."""
    if effect is None or effect.speedup is None:
        return "until it is clear"
    return f"{formatting.speedup(effect.speedup, effect.low, effect.high)} so far"


def concluded(case: Runner, entry: Entry, against: Settings) -> Effect:
    """Returns a candidate's effect and stores it in the case with its recordings."""
    settings, bases, candidates, aside = entry.settings, entry.bases, entry.candidates, entry.aside
    if entry.refusal:
        return _store(case, Effect(settings, against, outcome="refused", reason=entry.refusal))
    notes, lost = (aside.notes, aside.lost) if aside is not None else ((), ())
    if entry.failure:
        failed = Effect(settings, against, outcome=entry.failed_as, reason=entry.failure, seconds=entry.seconds)
        return _store(case, replace(failed, not_restored=lost))
    measured = entry.effect
    if measured is None:
        outcome, reason = "stopped", ""
        if bases and not case.stopped:
            outcome, reason = bases[-1].outcome, run.baseline_ended(bases[-1])
        no_effect = Effect(settings, against, outcome=outcome, reason=reason, seconds=entry.seconds)
        return _store(case, replace(no_effect, not_restored=lost))
    bound = any(knobs.known(name).bounds_only for name in settings)
    if bound:  # its runs predict nothing for other settings, and its losses come from a few batches
        measured = without_losses(measured)
    else:
        case.trials.append((bases[-1], replace(candidates[-1], notes=(*candidates[-1].notes, *notes))))
    if case.diagnosis is None or "num_workers" in settings:  # two numbers of workers together say more than one
        newest = next((recording for recording in reversed(case.recordings) if len(recording.steps)), bases[-1])
        case.diagnosis = judged(newest, [side for pair in case.trials for side in pair])[0]
    effect = _with_forecast(measured, None if bound else _predicted(case, entry, against))
    outcome = "stopped" if entry.stopped else effect.outcome
    reason = effect.reason or entry.dropped
    return _store(case, replace(effect, seconds=entry.seconds, outcome=outcome, reason=reason, not_restored=lost))


def _store(case: Runner, effect: Effect) -> Effect:
    case.effects.append(effect)
    return effect


def _with_forecast(effect: Effect, predicted: Forecast | None) -> Effect:
    """Returns the effect with the forecast added."""
    if predicted is None:
        return effect
    return replace(
        effect, predicted_speedup=predicted.speedup, predicted_low=predicted.low, predicted_high=predicted.high
    )


def _predicted(case: Runner, entry: Entry, against: Settings) -> Forecast | None:
    """Returns the forecast of settings against the baseline, from the runs before the trial."""
    hardware = entry.bases[-1].setup.hardware  # runs on another machine or device predict nothing here
    runs = [recording for recording in case.recordings if recording.setup.hardware == hardware]
    seen = [recording for recording in runs if recording.settings == against and len(recording.steps)] or entry.bases
    tried = [recording for recording in entry.seen if recording.setup.hardware == hardware]
    others = tuple(measure(recording) for recording in (*runs, *tried) if recording.settings != against)
    turned = {name: value for name, value in entry.settings.items() if against.get(name) != value}
    return forecast(measure(seen[-1]), turned, others)
