"""What kernel and page say to each other: the panel's state, one frozen class a section, and the messages.

`as_json` makes of it what is sent: a class becomes an object whose names are in camel case, tuples become arrays. The
page's declarations (`notebook/frontend/src/contract.d.ts`) are generated from this file and what it names, a class
without the ending `Shown`: `python -m tools.typescript`. Figures are in words already, texts are cleaned, and
nothing is NaN: the page only draws.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, NewType, TypeAlias, TypedDict

from gpu_doctor.labels import Labels
from gpu_doctor.recording import SettingValue
from gpu_doctor.trials import Dropped, Step

Asked: TypeAlias = Literal[
    "stop", "trial", "treat", "sweep", "largest", "ideal", "look", "fix", "forecast", "before", "state"
]  # fmt: skip
Changed = NewType("Changed", dict[str, Any])
"""Some sections of a PanelState."""
Tone: TypeAlias = Literal["", "good", "bad"]
Status: TypeAlias = Literal[
    "starting", "waiting", "recording", "replaying", "trial", "treating", "sweeping", "searching", "looking", "idle"
]  # fmt: skip


@dataclass(frozen=True)
class ProgressShown:
    """How far a trial is."""

    text: str
    steps: str
    """`step 12 of 50`."""
    share: float
    """0..1; 0 where its end is not known."""
    left: str
    """`at most 8 s left`; empty while nothing can be told."""


@dataclass(frozen=True)
class Header:
    """The machine, and how far the run is."""

    machine: str
    replay: str
    """That a recording is played, and how fast; empty for a run."""
    status: str
    """In words."""
    failed: bool
    """The newest run broke, and nothing goes on."""
    name: str
    clock: str
    steps: str
    rate: str
    settings: str
    """What the side that runs is turned to; empty for the code as written."""
    stop: str
    """How to stop where a click is not heard while the cell runs; empty where it is."""
    progress: ProgressShown | None


@dataclass(frozen=True)
class Paragraph:
    """A part of the page of a cause."""

    title: str
    """Empty for the first."""
    text: str
    """Text between backticks is code."""
    code: bool
    """All of `text` is code: it is shown as it is."""


@dataclass(frozen=True)
class PrescriptionShown:
    """What to try."""

    text: str
    predicted: str
    settings: Mapping[str, SettingValue]
    """Empty where no knob does it."""
    code: str
    """Lines to paste."""
    safety: str
    changes: str


@dataclass(frozen=True)
class Advice(PrescriptionShown):
    """What to try first, with the page of the rule that found it."""

    page: tuple[Paragraph, ...]
    hint: bool
    """It is that of a hint: worth a trial, and nothing measured says what it gives."""


@dataclass(frozen=True)
class Verdict:
    """The verdict and what to do first, or what it waits for."""

    text: str
    kind: str
    """`input-bound`; empty while there is none."""
    accent: str
    """A colour."""
    early: str
    risk: str
    advice: Advice | None


@dataclass(frozen=True)
class Result:
    """What the trials proved; it stands above the verdict, with what shows its code and uses it."""

    text: str
    """`2.87x faster with num_workers=4, verified (2.7-3.0)`; `At least 2.3x ...` where the interval is wide."""
    more: str
    """What became of the losses, and how it was measured again, in sentences."""
    warns: bool
    """The training is not the same."""
    settings: Mapping[str, SettingValue]


@dataclass(frozen=True)
class Segment:
    """One phase of a step."""

    phase: str
    label: str
    share: float
    """Of the whole bar's length, 0..1."""
    percent: str
    """Of its own step."""
    time: str
    colour: str
    ink: str
    """The colour of letters on it."""


@dataclass(frozen=True)
class Spread:
    """How long the steps of a trial's side took."""

    at: tuple[float, ...]
    """Its quantiles 5, 25, 50, 75 and 95 %, as parts (0..1) of the time scale of both sides' bars."""
    text: str


@dataclass(frozen=True)
class SideShown:
    """One side of a trial."""

    label: str
    """Its settings: `as written`, `num_workers=4`."""
    total: str
    """Of a mean step; where its steps hold another number of samples, for as many as a step of the other side."""
    segments: tuple[Segment, ...]
    """Their shares are of the time scale of both sides."""
    spread: Spread | None
    """None where there are too few steps."""


@dataclass(frozen=True)
class Compared:
    """Before and after: the newest trial's sides to one time scale, the baseline first."""

    of: str
    sides: tuple[SideShown, SideShown]


@dataclass(frozen=True)
class Ceiling:
    """How long a step is with an ideal loader, as a trial measured it."""

    share: float
    """Of the mean step, 0 to 1."""
    text: str


@dataclass(frozen=True)
class Anatomy:
    """Where a mean step goes."""

    total: str
    of: str
    """What it is the mean of."""
    segments: tuple[Segment, ...]
    compared: Compared | None
    """None before any trial."""
    ceiling: Ceiling | None = None
    """None where it was not measured."""


@dataclass(frozen=True)
class Choice:
    """A value of a knob."""

    value: SettingValue | None
    """None where the value as written is not known."""
    label: str
    refusal: str
    """Why it cannot be chosen; empty if it can."""


@dataclass(frozen=True)
class Offer:
    """The values of a knob, and which of them cannot be had."""

    choices: tuple[Choice, ...]
    refusal: str
    """Why the knob cannot be turned at all; empty if it can."""
    partly: tuple[str, ...]
    """Where only some values cannot be had: which, and why, in words that follow its label."""


@dataclass(frozen=True)
class KnobShown(Offer):
    """A knob."""

    name: str
    label: str
    front: bool
    """It stands in the first row."""
    safe: bool
    turned: str
    """What turning it does to the training, in words that follow its label."""
    written: SettingValue | None
    needs_workers: str
    """Why it cannot be turned where no workers are chosen; empty where it can."""


@dataclass(frozen=True)
class ForecastShown:
    """What settings should give, against the code as written."""

    settings: Mapping[str, SettingValue]
    text: str
    """`predicted 1.9x (1.5-2.4)`, `measured 1.8x (1.7-1.9) in trial 2`, or that there is no forecast."""
    known: bool
    """There is a forecast, or a measurement."""


@dataclass(frozen=True)
class Budget:
    """How long a trial is at first, and at most."""

    steps: int
    seconds: float
    most_steps: int
    most_seconds: int


@dataclass(frozen=True)
class FixCell:
    """A cell of the user's with the change."""

    label: str
    text: str


@dataclass(frozen=True)
class FixShown:
    """The change of the user's cells for some settings."""

    lines: tuple[tuple[str, str], ...]
    """Of the diff: kind (removed, added, same, head, place) and text."""
    cells: tuple[FixCell, ...]
    notes: tuple[str, ...]
    paste: str
    """Lines to paste by hand."""
    complete: bool
    """The cells above have all of it."""
    error: str
    """Why there is none."""
    settings: Mapping[str, SettingValue]


@dataclass(frozen=True)
class PlanShown:
    """What a treatment arrived at."""

    sentence: str
    steps: tuple[Step, ...]
    dropped: tuple[Dropped, ...]
    notes: tuple[str, ...]
    by_hand: tuple[str, ...]
    settings: Mapping[str, SettingValue]
    """What was kept."""
    fix: FixShown | None


@dataclass(frozen=True)
class Swept:
    """One combination of a sweep."""

    setting: str
    state: str
    """Such as `waiting`, `running`, `measured`, `stopped early`, `failed`."""
    rate: str
    """Such as `382 samples/s`; empty where nothing was measured."""
    gain: str
    """Beside the code as written on the same machine: `2.31x (2.1-2.5) faster`; empty where nothing was measured."""
    losses: str
    note: str
    """Why it ended so, and where it was measured if that is not this machine."""
    share: float
    """Part (0..1) of the longest bar."""
    faster: bool = False
    """Measured clearly faster than the code as written, with losses that stay finite."""
    best: bool = False


@dataclass(frozen=True)
class SweepShown:
    """What a sweep found."""

    sentence: str
    rows: tuple[Swept, ...]
    first: int
    """So many are drawn at once, after the code as written."""
    later: str
    """What the others are folded under: `3 more combinations`."""
    notes: tuple[str, ...]
    settings: Mapping[str, SettingValue]
    """Of the best; empty where none is verified."""


@dataclass(frozen=True)
class Size:
    """One batch size that was seen."""

    label: str
    peak: str
    """Its peak of memory, such as `61.0 GiB`; empty where it did not fit."""
    said: str
    """Its samples a second, and what it is: the largest that fits, the best for samples/s."""
    share: float
    """Peak over what the process may take of the card's memory (0..1)."""
    chosen: bool = False


@dataclass(frozen=True)
class LargestShown:
    """What the search for the largest batch found."""

    sentence: str
    sizes: tuple[Size, ...]
    notes: tuple[str, ...]
    settings: Mapping[str, SettingValue]


@dataclass(frozen=True)
class RanksShown:
    """The ranks that the cell has started, side by side."""

    sentence: str
    remarks: tuple[tuple[str, str], ...]
    """What is wrong, and what to do about it."""
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class LookShown:
    """What a deep look found: operators in the form of `Size`, with their share of the step in the place of memory."""

    sentence: str
    operators: tuple[Size, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Cell:
    """A cell of the table."""

    text: str
    tone: Tone = ""
    title: str = ""
    """What it says when it is pointed at; reports that cannot be pointed at go without."""
    small: str = ""
    """Beside the text, smaller: what a step of a climb gave over the step before; empty for most."""


@dataclass(frozen=True)
class Unfolded:
    """What a trial's row unfolds."""

    losses: str
    """Both sides' losses as the address of an image; empty where there is nothing to draw."""
    warns: bool
    judged: tuple[str, ...]
    notes: tuple[str, ...]
    settings: Mapping[str, SettingValue]
    measured: str


@dataclass(frozen=True)
class Table:
    """The runs and trials."""

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    details: tuple[Unfolded | None, ...]
    """What each row unfolds."""


@dataclass(frozen=True)
class FindingShown:
    """A finding or a hint with its price, its evidence and its cures."""

    kind: Literal["lost", "at-most", "hint"]
    share: float | None
    """Of the wall-clock, 0..1; None where nothing measured prices it."""
    headline: str
    price: str
    """`lost 34 %`, `at most 21 %`, `worth a trial`."""
    risk: str
    evidence: tuple[str, ...]
    prescriptions: tuple[PrescriptionShown, ...]
    rule: str
    page: tuple[Paragraph, ...]


@dataclass(frozen=True)
class Silence:
    """Causes that could not be judged, for one reason."""

    reason: str
    count: str
    """`9 causes`."""
    rules: str
    folded: bool
    """They are too many to be named at once."""


@dataclass(frozen=True)
class Footer:
    """What measuring cost, and the notes."""

    overhead: str
    notes: tuple[str, ...]
    title: str
    """`3 notes`."""


@dataclass(frozen=True)
class Said:
    """A sentence to know before a trial."""

    text: str
    tone: Tone
    allow: str = ""
    """The permission that lifts this refusal, as `allow=` of a trial names it; empty = none does, or it is none."""
    tick: str = ""
    """Label of the box that gives it."""


@dataclass(frozen=True)
class PanelState:
    """All that the page draws but the plots."""

    status: Status
    busy: bool
    message: str
    labels: Labels
    header: Header
    result: Result | None
    """None while no trial was clearly faster than the code as written."""
    verdict: Verdict
    anatomy: Anatomy
    filling: str
    """What is known to fill the memory: `model 98 MiB, one batch 19 MiB`; empty where nothing is."""
    plan: PlanShown | None
    sweep: SweepShown | None
    largest: LargestShown | None
    look: LookShown | None
    ranks: RanksShown | None
    table: Table
    findings: tuple[FindingShown, ...]
    hints: tuple[FindingShown, ...]
    """What nothing measured prices: risks first, then what is worth a trial."""
    silent: tuple[Silence, ...]
    footer: Footer
    knobs: tuple[KnobShown, ...]
    forecasts: tuple[ForecastShown, ...]
    """Of every single value that can be chosen, and of the settings that were asked for last; empty
    while the loop as written was not measured."""
    trial: Budget
    sweep_most: int
    """Combinations that a sweep takes."""
    no_sweep: str
    """Why no sweep is offered; empty where it is."""
    no_trials: str
    """Why nothing can be run again here; empty if it can."""
    no_largest: str
    """Why the largest batch cannot be looked for; empty if it can."""
    no_ideal: str
    """Why no ideal loader can be tried; empty if it can."""
    fixes: Mapping[str, FixShown]
    """Changes that were unfolded, to be found by their settings."""
    before: tuple[Said, ...] | None
    """None while nobody asked."""


@dataclass(frozen=True)
class Points:
    """What to do with the points in a message's buffer: for every line its x, then its y, as float32."""

    clear: tuple[str, ...]
    """Layers whose points go first: `base` (the run, or a trial's baseline), `trial` (a candidate)."""
    lines: tuple[tuple[str, str, int, bool], ...]
    """Layer, key of the line in the figure, number of points, and whether they replace those that are there."""
    names: Mapping[str, str]
    """Layer -> what the legend calls it."""
    end: float
    """Of the x axis, in seconds."""
    tops: Mapping[str, float | None]
    """Plot -> the end of its y axis."""
    epochs: tuple[float, ...]
    evaluations: tuple[float, ...]


@dataclass(frozen=True)
class Whole:
    """All that the page should have: what it holds otherwise is no longer true. The answer to the ask `state`."""

    seq: int
    """Of every message to the page: one more than that of the message before. A page that misses one asks for the
    state; what is older than what it has, it does not take."""
    kind: Literal["state"]
    state: PanelState
    rows: Points


@dataclass(frozen=True)
class News:
    """What has changed since the message before."""

    seq: int
    kind: Literal["news"]
    state: Changed
    """Sections that changed, each whole."""
    rows: Points


class Asking(TypedDict):
    """What every message of the page has."""

    ask: Asked


class Ask(Asking, total=False):
    """A message of the page."""

    settings: Mapping[str, SettingValue]
    """With `trial`, `fix` and `forecast`."""
    grid: Mapping[str, tuple[SettingValue, ...]]
    """With `sweep`: the values of each knob."""
    steps: int
    """Of a side of a trial; missing = the case has its own."""
    seconds: float
    changes_training: bool
    """With `treat`: batch size and precision may be tried as well."""
    allow: tuple[str, ...]
    """With what runs the cell again: the permissions whose boxes are ticked."""


def as_json(value: Any) -> Any:
    """Plain data as it is sent."""
    if value is None or isinstance(value, (str, int, float)):  # most of it
        return value
    if is_dataclass(value):
        kind: Any = type(value)
        return {sent: as_json(getattr(value, name)) for name, sent in _names(kind)}
    if isinstance(value, (tuple, list)):
        return [as_json(one) for one in value]
    return {name: as_json(one) for name, one in value.items()}


@functools.cache
def _names(of: type) -> tuple[tuple[str, str], ...]:
    """A class's fields, and what they are called on the wire."""
    return tuple((one.name, camel(one.name)) for one in fields(of))


def camel(name: str) -> str:
    """`sweepMost` for `sweep_most`."""
    first, *rest = name.split("_")
    return first + "".join(one.capitalize() for one in rest)
