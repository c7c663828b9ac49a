"""Runs a grid of settings on Ray Tune: a grid search in which ASHA stops slow combinations early, and a callback."""

from __future__ import annotations

import base64
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler

from gpu_doctor import formatting
from gpu_doctor.recording import Recording
from gpu_doctor.trials import race
from gpu_doctor.trials.executors.parcel import of_bytes
from gpu_doctor.trials.executors.remote import METRIC, Pairs
from gpu_doctor.trials.results import EARLY
from gpu_doctor.trials.rounds import FEWEST_PAIRS, MOST_PAIRS
from gpu_doctor.trials.runner import Runner

REDUCTION: Final = 3
"""Reduction factor of ASHA: about one in so many combinations that reach a rung goes on to three times the pairs."""
LOOK_S: Final = 0.1
"""Seconds between two checks for Stop."""


class Ended(Exception):
    """Raised after a Stop to end Tune's loop, which ends its processes."""


class Watch(tune.Callback):
    """A callback that follows Tune's trials: gives each entry its recordings, and ends all trials after a Stop."""

    def __init__(self, entries: Sequence[race.Entry], changed: Callable[[], None]) -> None:
        """Starts to follow some entries.

        Args:
            entries: combinations of the sweep.
            changed: called on Tune's thread after each change.
        """
        self._entries, self._changed = entries, changed
        self.ended = threading.Event()

    def __deepcopy__(self, memo: dict[int, Any]) -> Watch:
        """Returns itself: Tune copies its arguments, but this object must receive the events."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles as an empty callback: Tune saves its arguments to resume a run, which a sweep never does."""
        return tune.Callback, ()

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Ends all trials after a Stop; Tune calls it several times a second."""
        if not self.ended.is_set():
            return
        for actor in (trial.temporary_state.ray_actor for trial in trials):
            if actor is not None:
                ray.kill(actor)  # Tune itself would wait for the end of its pair
        raise Ended

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Marks a combination as running."""
        self._entry(trial).running = True
        self._changed()

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: Mapping[str, Any], **info: Any
    ) -> None:
        """Adds the recordings of a pair to its entry, or the reason why there are none."""
        entry = self._entry(trial)
        entry.bases += _recordings(result.get("bases", ()))
        entry.candidates += _recordings(result.get("candidates", ()))
        entry.refusal, entry.failure = result.get("refusal", ""), result.get("failure", "")
        entry.seconds = float(result["time_total_s"])
        entry.going = not result["decided"]  # ASHA also sets its `done`
        self._changed()

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Marks a combination as ended: it was decided, or ASHA stopped it early."""
        entry = self._entry(trial)
        if entry.going:
            pairs = formatting.count(len(entry.candidates), "pair")
            entry.dropped = f"{EARLY} after {pairs} of runs: others were faster"
        entry.going = entry.running = False
        self._changed()

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Marks a combination as failed, because its process is gone."""
        entry = self._entry(trial)
        entry.failure, entry.failed_as = _lost(_error_of(trial))
        entry.going = entry.running = False
        self._changed()

    def _entry(self, trial: Any) -> race.Entry:
        number: int = trial.config["combination"]["number"]
        return self._entries[number]


def tuned(
    case: Runner,
    entries: Sequence[race.Entry],
    sent: Mapping[str, Any],
    resources: Sequence[Mapping[str, float]],
    changed: Callable[[], None],
    *,
    steps: int,
    seconds: float,
) -> None:
    """Tries entries on the connected Ray and fills in their recordings and failures.

    Tune runs on its own thread, so that a Stop or an interrupt ends it at once; the thread has ended on return.

    Args:
        case: case that shows the progress and knows of a Stop.
        entries: combinations; ASHA stops those early that are slower than others.
        sent: parcel made by `pack`.
        resources: resources that each entry requests.
        changed: called after each change, on Tune's thread.
        steps: steps of one side of a pair.
        seconds: time limit of a combination's trial.

    Raises:
        KeyboardInterrupt: The sweep was interrupted; all processes have ended.
        Exception: Any error of Tune itself.
    """
    watch = Watch(entries, changed)
    raised: list[BaseException] = []

    def fit() -> None:
        """Runs the sweep in a folder of its own; stores any error but `Ended`."""
        try:
            with tempfile.TemporaryDirectory(prefix="gpu_doctor-") as folder:
                _tuner(entries, sent, resources, watch, folder, steps, seconds).fit()
        except Ended:
            pass
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=fit, name="gpu_doctor-sweep", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            if case.stopped:
                watch.ended.set()
            case.say(_progress(entries))
            thread.join(LOOK_S)
    finally:
        watch.ended.set()
        thread.join()
        case.say("")
        for entry in entries:
            entry.stopped, entry.running = entry.going, False
    if raised:
        raise raised[0]


def _tuner(
    entries: Sequence[race.Entry],
    sent: Mapping[str, Any],
    resources: Sequence[Mapping[str, float]],
    watch: Watch,
    folder: str,
    steps: int,
    seconds: float,
) -> Any:
    bundles = [dict(bundle) for bundle in resources]  # sent with the class, which must not refer to the entries

    def requested(config: Mapping[str, Any]) -> Any:
        return tune.PlacementGroupFactory([bundles[config["combination"]["number"]]])

    several: dict[str, Any] = {"grace_period": FEWEST_PAIRS, "reduction_factor": REDUCTION}
    asha = ASHAScheduler(metric=METRIC, mode="max", max_t=MOST_PAIRS, **several)
    grid = [{"number": number, "settings": dict(entry.settings)} for number, entry in enumerate(entries)]
    return tune.Tuner(
        tune.with_resources(tune.with_parameters(Pairs, sent=sent), requested),
        param_space={"steps": steps, "seconds": seconds, "combination": tune.grid_search(grid)},
        tune_config=tune.TuneConfig(scheduler=asha, reuse_actors=True),
        run_config=tune.RunConfig(
            storage_path=folder,
            name="sweep",
            callbacks=[watch],
            verbose=0,
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    )


def _progress(entries: Sequence[race.Entry]) -> str:
    done = sum(not entry.going for entry in entries)
    return f"{done} of {len(entries)} finished, {sum(entry.running for entry in entries)} running"


def _recordings(files: Sequence[str]) -> list[Recording]:
    return [of_bytes(base64.b64decode(file)) for file in files]


def _error_of(trial: Any) -> Exception | None:
    """Returns the error that ended a combination, from a file in Tune's folder."""
    try:
        with Path(trial.pickled_error_file).open("rb") as file:
            found: Exception = ray.cloudpickle.load(file)
    except Exception:  # there is no file, or the error cannot be unpickled here
        return None
    return found


def _lost(error: Exception | None) -> tuple[str, str]:
    """Returns why a combination's process is gone, in a sentence, and its outcome."""
    if isinstance(error, ray.exceptions.OutOfMemoryError):
        return "the machine's memory ran out, and Ray ended the process", "out-of-memory"
    if isinstance(error, ray.exceptions.RayActorError):
        return "the process ended by itself, or its machine was lost", "failed"
    return f"the process failed: {_cause(error)}", "failed"


def _cause(error: Exception | None) -> str:
    """Returns what a process raised, without Ray's own traceback."""
    cause = getattr(error, "cause", None)
    shown = cause if isinstance(cause, BaseException) else error
    return f"{type(shown).__name__}: {formatting.first_line(shown)}" if shown is not None else "no error was given"
