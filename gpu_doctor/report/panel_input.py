"""What the panel is made of: a case as it stands, and how its run stands in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis import FEWEST_STEPS, Diagnosis
from gpu_doctor.job import Job
from gpu_doctor.labels import OUTCOME_LABELS
from gpu_doctor.recording import Recording, Settings, SettingValue, Setup
from gpu_doctor.report.contract import FixShown, Said, Status
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
"""Nothing runs now: what was seen is all there is."""
PROMISED_S: Final = 5.0
"""A first verdict comes within so many seconds of a loop whose steps are short; then it is said what it waits for."""


@dataclass(frozen=True)
class Progress:
    """How far a trial is, or a sweep."""

    step: int
    steps: int
    seconds_left: float | None
    text: str
    what: str = "step"
    """What is counted; empty where `text` has the numbers."""


@dataclass(frozen=True)
class PanelInput:
    """A case as it stands."""

    status: Status = "starting"
    name: str = ""
    """What the person called the run; empty where it has no name of theirs."""
    setup: Setup = field(default_factory=Setup)
    turned: Mapping[str, SettingValue] = field(default_factory=dict)
    """What was turned when the setup was found; empty for a run as written."""
    diagnosis: Diagnosis | None = None
    recordings: tuple[Recording, ...] = ()
    effects: tuple[Effect, ...] = ()
    settings: Mapping[str, SettingValue] = field(default_factory=dict)
    """What the running run or trial side is turned to."""
    progress: Progress | None = None
    elapsed_s: float = 0.0
    step_count: int = 0
    samples_per_s: float | None = None
    source: str = ""
    notes: tuple[str, ...] = ()
    message: str = ""
    """One sentence: why a request was refused, what went wrong, what a treatment found."""
    trials: tuple[Sides, ...] = ()
    """The recordings that the effects left, as `Case.trials` has them."""
    plan: Plan | None = None
    """What the last treatment arrived at."""
    sweep: Sweep | None = None
    """What the last sweep found."""
    largest: Largest | None = None
    """What the last search for the largest batch found."""
    look: Look | None = None
    """What the last deep look found."""
    job: Job | None = None
    """The ranks that the last run has started."""
    fixes: Mapping[str, FixShown] = field(default_factory=dict)
    """The changes of the user's cells that were unfolded, by `describe(settings)`."""
    asked: tuple[Settings, ...] = ()
    """Settings that the page asked a forecast of."""
    before: tuple[Said, ...] | None = None
    """What to know before a trial (`notebook/details.py`), None while nobody asked."""
    trial_steps: int = 50
    trial_seconds: float = 20.0
    """Budget that the page offers for a trial at first."""
    price: float | None = None
    """Dollars that an hour of the machine costs; None where nobody said."""
    replay_speed: float | None = None
    """How many times as fast as it was a recording is played; None of a run."""
    no_trials: str = ""
    """Why nothing can be run again; empty where it can."""
    stop_live: bool = True
    """A click on Stop is heard while the cell runs; else the panel says how to interrupt the kernel."""


def awaited(shown: PanelInput) -> str:
    """What the verdict waits for, or why there is none."""
    if shown.status == "starting":
        return "Ready: the verdict comes with the first steps."
    if shown.status in ("waiting", "idle"):
        return "No verdict: the notes say why." if shown.recordings else "Nothing was recorded yet."
    if shown.elapsed_s < PROMISED_S:
        return "Listening to the loop: the verdict comes within 30 steps or 5 seconds."
    if not shown.step_count:
        return "No training step yet: the verdict comes with the first ones."
    measured = shown.diagnosis.vitals.measured_steps if shown.diagnosis is not None else 0
    return f"Listening to the loop: {measured} of the {FEWEST_STEPS} steps needed for a verdict are measured."


def ended(shown: PanelInput) -> str:
    """How the newest run ended, if nothing goes on and it did not simply come to its end."""
    if shown.status != "idle" or _outcome(shown) == "completed":
        return ""
    return OUTCOME_LABELS.get(_outcome(shown), "")


def failed(shown: PanelInput) -> bool:
    """Whether the newest run broke, and nothing goes on."""
    return shown.status == "idle" and _outcome(shown) in ("failed", "out-of-memory")


def raised(shown: PanelInput) -> str:
    """What the cell raised, if it did: its traceback stands below all that it wrote."""
    if shown.status != "idle" or _outcome(shown) != "failed" or shown.effects:
        return ""
    run = shown.recordings[-1]
    steps = len(run.steps)
    seen = f"the figures show the {formatting.count(steps, 'step')} before it" if steps else "no step had ended"
    return f"The cell raised {formatting.clean(run.reason, 300) or 'an exception'}; {seen}."


def _outcome(shown: PanelInput) -> str:
    return shown.recordings[-1].outcome if shown.recordings else "completed"
