"""The input of the panel: the current state of a case, with the sentences that describe its run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis import FEWEST_STEPS, Diagnosis
from gpu_doctor.job import Job
from gpu_doctor.labels import OUTCOME_LABELS
from gpu_doctor.recording import Recording, Settings, SettingValue, Setup
from gpu_doctor.report.contract import FixShown, Notice, Status
from gpu_doctor.report.trials import Sides
from gpu_doctor.trials import Largest, Look, Plan, Sweep
from gpu_doctor.trials.compare import Effect

STATUS: Final[Mapping[str, str]] = {
    "starting": "starting",
    "waiting": "waiting for the kernel",
    "recording": "recording",
    "replaying": "replaying",
    "trial": "trial",
    "treating": "treating",
    "sweeping": "sweep",
    "searching": "looking for the largest batch",
    "looking": "a deep look",
    "idle": "finished",
}
BUSY: Final = ("waiting", "recording", "replaying", "trial", "treating", "sweeping", "searching", "looking")
SETTLED: Final = ("waiting", "idle")
"""Statuses in which nothing runs, so that no more steps will come."""
PROMISED_S: Final = 5.0
"""Seconds within which a loop with short steps gets a verdict; after that the panel says what the verdict waits for."""


@dataclass(frozen=True)
class Progress:
    """The progress of a trial or a sweep."""

    step: int
    steps: int
    seconds_left: float | None
    text: str
    what: str = "step"
    """Name of the unit that is counted; empty if `text` contains the numbers."""


@dataclass(frozen=True)
class PanelInput:
    """The current state of a case, from which the panel is drawn."""

    status: Status = "starting"
    name: str = ""
    """Name that the user gave the run; empty if none."""
    setup: Setup = field(default_factory=Setup)
    turned: Mapping[str, SettingValue] = field(default_factory=dict)
    """Settings that were applied when the setup was recorded; empty for a run as written."""
    diagnosis: Diagnosis | None = None
    recordings: tuple[Recording, ...] = ()
    effects: tuple[Effect, ...] = ()
    settings: Mapping[str, SettingValue] = field(default_factory=dict)
    """Settings of the run or trial side in progress."""
    progress: Progress | None = None
    elapsed_s: float = 0.0
    step_count: int = 0
    samples_per_s: float | None = None
    source: str = ""
    notes: tuple[str, ...] = ()
    message: str = ""
    """One sentence: the reason of a refusal, an error, or the result of a treatment."""
    trials: tuple[Sides, ...] = ()
    """Recordings of the trials, as in `Case.trials`."""
    plan: Plan | None = None
    """Plan of the last treatment."""
    sweep: Sweep | None = None
    """Result of the last sweep."""
    largest: Largest | None = None
    """Result of the last search for the largest batch."""
    look: Look | None = None
    """Result of the last deep look."""
    job: Job | None = None
    """Ranks that the last run started."""
    fixes: Mapping[str, FixShown] = field(default_factory=dict)
    """Changes to the user's cells that the page has unfolded, by `describe(settings)`."""
    asked: tuple[Settings, ...] = ()
    """Settings whose forecasts the page requested."""
    before: tuple[Notice, ...] | None = None
    """Sentences to read before a trial (`notebook/details.py`); None until the page requests them."""
    trial_steps: int = 50
    """Default number of steps of a trial."""
    trial_seconds: float = 20.0
    """Default time limit of a trial, in seconds."""
    price: float | None = None
    """Cost of the machine in dollars per hour; None if unknown."""
    replay_speed: float | None = None
    """Speed of a replay as a multiple of the original; None for a live run."""
    no_trials: str = ""
    """Reason why the cell cannot be rerun; empty if it can."""
    stop_live: bool = True
    """True if a click on Stop reaches the kernel while the cell runs; else the panel says how to interrupt it."""


def awaited(shown: PanelInput) -> str:
    """Returns a sentence that says what the verdict waits for, or why there is none."""
    if shown.status == "starting":
        return "Ready: the verdict comes with the first steps."
    if shown.status in ("waiting", "idle"):
        return "No verdict: the notes say why." if shown.recordings else "Nothing was recorded yet."
    if shown.elapsed_s < PROMISED_S:
        return "Listening to the loop: the verdict comes within 30 steps or 5 seconds."
    if not shown.step_count:
        return "No training step yet: the verdict comes with the first steps."
    measured = shown.diagnosis.vitals.measured_steps if shown.diagnosis is not None else 0
    return f"Listening to the loop: {measured} of the {FEWEST_STEPS} steps needed for a verdict are measured."


def ended(shown: PanelInput) -> str:
    """Returns the label of the newest run's outcome if nothing is running and the run did not complete, else ''."""
    if shown.status != "idle" or _outcome(shown) == "completed":
        return ""
    return OUTCOME_LABELS.get(_outcome(shown), "")


def failed(shown: PanelInput) -> bool:
    """Returns True if the newest run failed and nothing is running."""
    return shown.status == "idle" and _outcome(shown) in ("failed", "out-of-memory")


def raised(shown: PanelInput) -> str:
    """Returns a sentence with the exception that ended the cell, or '' if it raised none.

    The panel repeats it because the traceback stands below all output of the cell.
    """
    if shown.status != "idle" or _outcome(shown) != "failed" or shown.effects:
        return ""
    run = shown.recordings[-1]
    steps = len(run.steps)
    seen = f"the figures show the {formatting.count(steps, 'step')} before it" if steps else "no step had ended"
    return f"The cell raised {formatting.clean(run.reason, 300) or 'an exception'}; {seen}."


def _outcome(shown: PanelInput) -> str:
    return shown.recordings[-1].outcome if shown.recordings else "completed"
