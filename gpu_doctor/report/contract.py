"""The messages between kernel and page: the panel's state, one frozen class per section, and the page's requests.

`as_json` converts them for sending: a class becomes an object with names in camel case, a tuple becomes an array. The
page's type declarations (`notebook/frontend/src/contract.d.ts`) are generated from this file and the classes it uses,
with the ending `Shown` dropped from the class names: `python -m tools.typescript`. Figures are formatted, texts are
cleaned and nothing is NaN, so that the page only draws.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, NewType, TypeAlias, TypedDict

from gpu_doctor.labels import Labels
from gpu_doctor.recording import SettingValue
from gpu_doctor.trials import Dropped, Step

RequestKind: TypeAlias = Literal[
    "stop", "trial", "treat", "sweep", "largest", "ideal", "look", "fix", "forecast", "before", "state"
]  # fmt: skip
Changed = NewType("Changed", dict[str, Any])
"""The sections of a PanelState that changed."""
Tone: TypeAlias = Literal["", "good", "bad"]
Status: TypeAlias = Literal[
    "starting", "waiting", "recording", "replaying", "trial", "treating", "sweeping", "searching", "looking", "idle"
]  # fmt: skip


@dataclass(frozen=True)
class ProgressShown:
    """The progress of a trial or a sweep."""

    text: str
    steps: str
    """Steps so far, `step 12 of 50`."""
    share: float
    """Part done, 0 to 1; 0 if the end is unknown."""
    left: str
    """Remaining time, `at most 8 s left`; empty while it is unknown."""


@dataclass(frozen=True)
class Header:
    """The panel's header: the machine, and the state of the run."""

    machine: str
    replay: str
    """Speed of the replay, `replay at 4x`; empty for a live run."""
    status: str
    """Status in words."""
    failed: bool
    """True if the newest run failed and nothing is running."""
    name: str
    clock: str
    steps: str
    rate: str
    settings: str
    """Settings of the run or side in progress; empty for the code as written."""
    stop: str
    """How to interrupt the kernel, if it cannot receive a click on Stop while the cell runs; else empty."""
    progress: ProgressShown | None


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of the page that explains a cause."""

    title: str
    """Title; empty for the first paragraph."""
    text: str
    """Text, with code between backticks."""
    code: bool
    """True if all of `text` is code, to be shown unchanged."""


@dataclass(frozen=True)
class PrescriptionShown:
    """A prescription: something to try."""

    text: str
    predicted: str
    settings: Mapping[str, SettingValue]
    """Settings that apply it; empty if no knob does."""
    code: str
    """Lines of code to paste."""
    safety: str
    changes: str


@dataclass(frozen=True)
class Advice(PrescriptionShown):
    """The prescription to try first, with the page of the rule that found its cause."""

    page: tuple[Paragraph, ...]
    hint: bool
    """True if it belongs to a hint: worth a trial, but no measurement prices it."""


@dataclass(frozen=True)
class Verdict:
    """The verdict with the first advice, or what the verdict still waits for."""

    text: str
    kind: str
    """Bottleneck, such as `input-bound`; empty while there is no verdict."""
    accent: str
    """CSS colour of the verdict."""
    early: str
    risk: str
    advice: Advice | None


@dataclass(frozen=True)
class Result:
    """The proven result of the trials, shown above the verdict with buttons to show its code and apply it."""

    text: str
    """`2.87x faster with num_workers=4, verified (2.7-3.0)`; `At least 2.3x ...` if the interval is wide."""
    more: str
    """Sentences on how the losses compare and how the result was verified."""
    warns: bool
    """True if the change alters the training."""
    settings: Mapping[str, SettingValue]


@dataclass(frozen=True)
class Segment:
    """One phase of a step."""

    phase: str
    label: str
    share: float
    """Part of the whole bar's length, 0 to 1."""
    percent: str
    """Part of its own step, in percent."""
    time: str
    colour: str
    ink: str
    """CSS colour of text on the segment."""


@dataclass(frozen=True)
class Spread:
    """The spread of step times on one side of a trial."""

    at: tuple[float, ...]
    """Step times at the quantiles 5, 25, 50, 75 and 95 %, as parts (0 to 1) of the time scale of both sides' bars."""
    text: str


@dataclass(frozen=True)
class SideShown:
    """One side of a trial."""

    label: str
    """Settings of the side: `as written`, `num_workers=4`."""
    total: str
    """Mean step time. If the batch size differs, it is scaled to the baseline's batch."""
    segments: tuple[Segment, ...]
    """Phases of the mean step, whose shares are parts of the time scale of both sides."""
    spread: Spread | None
    """Spread of the step times; None if there are too few steps."""


@dataclass(frozen=True)
class Compared:
    """Before and after: both sides of the newest trial on one time scale, the baseline first."""

    of: str
    sides: tuple[SideShown, SideShown]


@dataclass(frozen=True)
class Ceiling:
    """The step time with an ideal loader, as a trial measured it."""

    share: float
    """Part of the mean step that remains with an ideal loader, 0 to 1."""
    text: str


@dataclass(frozen=True)
class Anatomy:
    """The anatomy of a mean step: its time by phase."""

    total: str
    of: str
    """Steps that the mean covers, `mean of 50 steps, 10 of warm-up left out`."""
    segments: tuple[Segment, ...]
    compared: Compared | None
    """Before and after the newest trial; None before any."""
    ceiling: Ceiling | None = None
    """Step time with an ideal loader; None if no trial measured it."""


@dataclass(frozen=True)
class Choice:
    """A value that a knob offers."""

    value: SettingValue | None
    """The value; None stands for the value as written, if that is unknown."""
    label: str
    refusal: str
    """Reason why the value cannot be chosen; empty if it can."""


@dataclass(frozen=True)
class Offer:
    """The values of a knob, with the reasons why some cannot be chosen."""

    choices: tuple[Choice, ...]
    refusal: str
    """Reason why the knob cannot be turned at all; empty if it can."""
    partly: tuple[str, ...]
    """Phrases that follow the label and say which values cannot be chosen and why; empty if all or none can."""


@dataclass(frozen=True)
class KnobShown(Offer):
    """A knob as the panel shows it."""

    name: str
    label: str
    front: bool
    """True if the knob stands in the first row."""
    safe: bool
    turned: str
    """Effect of turning the knob on the training, as a phrase that follows its label."""
    written: SettingValue | None
    needs_workers: str
    """Reason why the knob needs workers, shown while none are chosen; empty if it needs none."""


@dataclass(frozen=True)
class ForecastShown:
    """The forecast for some settings: their speed over the code as written."""

    settings: Mapping[str, SettingValue]
    text: str
    """`predicted 1.9x (1.5-2.4)`, `measured 1.8x (1.7-1.9) in trial 2`, or a phrase that says there is none."""
    known: bool
    """True if there is a forecast or a measurement."""


@dataclass(frozen=True)
class Budget:
    """The budget of a trial: the default and the largest number of steps and seconds."""

    steps: int
    seconds: float
    most_steps: int
    most_seconds: int


@dataclass(frozen=True)
class FixCell:
    """A cell of the user with the change applied."""

    label: str
    text: str


@dataclass(frozen=True)
class FixShown:
    """The change to the user's cells that some settings need."""

    lines: tuple[tuple[str, str], ...]
    """Lines of the diff: kind (removed, added, same, head, place) and text."""
    cells: tuple[FixCell, ...]
    notes: tuple[str, ...]
    paste: str
    """Lines of code to paste by hand."""
    complete: bool
    """True if the changed cells contain the whole change."""
    error: str
    """Reason why there is no change; empty if there is one."""
    settings: Mapping[str, SettingValue]


@dataclass(frozen=True)
class PlanShown:
    """The plan that a treatment arrived at."""

    sentence: str
    steps: tuple[Step, ...]
    dropped: tuple[Dropped, ...]
    notes: tuple[str, ...]
    by_hand: tuple[str, ...]
    settings: Mapping[str, SettingValue]
    """Settings of the plan."""
    fix: FixShown | None


@dataclass(frozen=True)
class SweepRow:
    """One combination of a sweep, as a row of its table."""

    setting: str
    state: str
    """State of the combination: `waiting`, `running`, `measured`, `stopped early`, `failed`."""
    rate: str
    """Throughput, `382 samples/s`; empty if it was not measured."""
    gain: str
    """Speed over the code as written on the same machine, `2.31x (2.1-2.5) faster`; empty if it was not measured."""
    losses: str
    note: str
    """Reason for its state, and the machine that measured it if that is not this one."""
    share: float
    """Length of the bar as a part of the longest, 0 to 1."""
    faster: bool = False
    """True if it was clearly faster than the code as written and its losses stayed finite."""
    best: bool = False


@dataclass(frozen=True)
class SweepShown:
    """The result of a sweep."""

    sentence: str
    rows: tuple[SweepRow, ...]
    first: int
    """Number of combinations drawn before the fold, after the row of the code as written."""
    later: str
    """Title of the folded rest, `3 more combinations`."""
    notes: tuple[str, ...]
    settings: Mapping[str, SettingValue]
    """Settings of the best combination; empty if none was verified."""


@dataclass(frozen=True)
class Size:
    """One batch size that was tried."""

    label: str
    peak: str
    """Peak memory, `61.0 GiB`; empty if it did not fit."""
    said: str
    """Samples per second, and marks such as `largest that fits`, `best for samples/s`."""
    share: float
    """Peak memory over the memory that the process may use on the card, 0 to 1."""
    chosen: bool = False


@dataclass(frozen=True)
class LargestShown:
    """The result of the search for the largest batch."""

    sentence: str
    sizes: tuple[Size, ...]
    notes: tuple[str, ...]
    settings: Mapping[str, SettingValue]


@dataclass(frozen=True)
class RanksShown:
    """The ranks that the cell started, side by side."""

    sentence: str
    remarks: tuple[tuple[str, str], ...]
    """Problems of the job, each with what to do about it."""
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class LookShown:
    """The result of a deep look: operators in the form of `Size`, with their share of the step in place of memory."""

    sentence: str
    operators: tuple[Size, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Cell:
    """A cell of the table of runs and trials."""

    text: str
    tone: Tone = ""
    title: str = ""
    """Text of the tooltip; static reports leave it out."""
    small: str = ""
    """Small text behind the main text: the gain of a treatment's step over the step before; usually empty."""


@dataclass(frozen=True)
class Unfolded:
    """The details that a trial's row unfolds."""

    losses: str
    """Address of an image of both sides' losses; empty if there is nothing to draw."""
    warns: bool
    judged: tuple[str, ...]
    notes: tuple[str, ...]
    settings: Mapping[str, SettingValue]
    measured: str


@dataclass(frozen=True)
class Table:
    """The table of runs and trials."""

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    details: tuple[Unfolded | None, ...]
    """Details that each row unfolds; None for a row without."""


@dataclass(frozen=True)
class FindingShown:
    """A finding or a hint with its price, its evidence and its cures."""

    kind: Literal["lost", "at-most", "hint"]
    share: float | None
    """Part of the wall-clock that it costs, 0 to 1; None if no measurement prices it."""
    headline: str
    price: str
    """Price in words: `lost 34 %`, `at most 21 %`, `worth a trial`."""
    risk: str
    evidence: tuple[str, ...]
    prescriptions: tuple[PrescriptionShown, ...]
    rule: str
    page: tuple[Paragraph, ...]


@dataclass(frozen=True)
class Silence:
    """The causes that could not be judged for one reason."""

    reason: str
    count: str
    """Number of causes, `9 causes`."""
    rules: str
    folded: bool
    """True if they are too many to list unfolded."""


@dataclass(frozen=True)
class Footer:
    """The panel's footer: the overhead of measuring, and the notes."""

    overhead: str
    notes: tuple[str, ...]
    title: str
    """Title of the notes, `3 notes`."""


@dataclass(frozen=True)
class Notice:
    """A sentence to read before a trial."""

    text: str
    tone: Tone
    allow: str = ""
    """Permission that lifts this refusal, as `allow=` of a trial names it; empty if none does or nothing is refused."""
    tick: str = ""
    """Label of the checkbox that gives the permission."""


@dataclass(frozen=True)
class PanelState:
    """Everything that the page draws except the plots."""

    status: Status
    busy: bool
    message: str
    labels: Labels
    header: Header
    result: Result | None
    """Proven result; None while no trial was clearly faster than the code as written."""
    verdict: Verdict
    anatomy: Anatomy
    filling: str
    """Known contents of the memory, `model 98 MiB, one batch 19 MiB`; empty if nothing is known."""
    plan: PlanShown | None
    sweep: SweepShown | None
    largest: LargestShown | None
    look: LookShown | None
    ranks: RanksShown | None
    table: Table
    findings: tuple[FindingShown, ...]
    hints: tuple[FindingShown, ...]
    """Findings that no measurement prices: risks first, then what is worth a trial."""
    silent: tuple[Silence, ...]
    footer: Footer
    knobs: tuple[KnobShown, ...]
    forecasts: tuple[ForecastShown, ...]
    """Forecasts for every single value that can be chosen and for the settings requested last; empty until the loop
    as written was measured."""
    trial: Budget
    sweep_most: int
    """Largest number of combinations in a sweep."""
    no_sweep: str
    """Reason why no sweep is offered; empty if one is."""
    no_trials: str
    """Reason why the cell cannot be rerun; empty if it can."""
    no_largest: str
    """Reason why the search for the largest batch is not offered; empty if it is."""
    no_ideal: str
    """Reason why no ideal loader can be tried; empty if one can."""
    fixes: Mapping[str, FixShown]
    """Changes that the user has unfolded, by their settings."""
    before: tuple[Notice, ...] | None
    """Sentences to read before a trial; None until the page requests them."""


@dataclass(frozen=True)
class Points:
    """Describes the points in a message's buffer, which holds each line's x and then its y as float32."""

    clear: tuple[str, ...]
    """Layers to empty first: `base` (the run, or a trial's baseline), `trial` (a candidate)."""
    lines: tuple[tuple[str, str, int, bool], ...]
    """Layer, key of the line in the figure, number of points, and True if they replace the points on the page."""
    names: Mapping[str, str]
    """Layer -> its name in the legend."""
    end: float
    """End of the x axis, in seconds."""
    tops: Mapping[str, float | None]
    """Plot -> upper end of its y axis; None to fit the data."""
    epochs: tuple[float, ...]
    evaluations: tuple[float, ...]


@dataclass(frozen=True)
class Whole:
    """The whole state, which replaces everything on the page; the answer to the request `state`."""

    seq: int
    """Number of the message, one more than that of the message before. A page that misses a number requests the
    state; it ignores messages older than its own."""
    kind: Literal["state"]
    state: PanelState
    rows: Points


@dataclass(frozen=True)
class News:
    """The changes since the message before."""

    seq: int
    kind: Literal["news"]
    state: Changed
    """Sections that changed, each complete."""
    rows: Points


class RequestBase(TypedDict):
    """The field that every request of the page has."""

    ask: RequestKind


class Request(RequestBase, total=False):
    """A request of the page."""

    settings: Mapping[str, SettingValue]
    """Settings of a `trial`, `fix` or `forecast`."""
    grid: Mapping[str, tuple[SettingValue, ...]]
    """Values of each knob in a `sweep`."""
    steps: int
    """Steps of each side of a trial; the case's own number if missing."""
    seconds: float
    changes_training: bool
    """True if a `treat` may also try batch size and precision."""
    allow: tuple[str, ...]
    """Permissions whose checkboxes are ticked, for requests that rerun the cell."""


def as_json(value: Any) -> Any:
    """Converts a message, or a part of one, to the plain data that is sent."""
    if value is None or isinstance(value, (str, int, float)):  # the most frequent case
        return value
    if is_dataclass(value):
        kind: Any = type(value)
        return {sent: as_json(getattr(value, name)) for name, sent in _names(kind)}
    if isinstance(value, (tuple, list)):
        return [as_json(item) for item in value]
    return {name: as_json(item) for name, item in value.items()}


@functools.cache
def _names(kind: type) -> tuple[tuple[str, str], ...]:
    """Returns the fields of a class, each with its name in the message."""
    return tuple((field.name, camel(field.name)) for field in fields(kind))


def camel(name: str) -> str:
    """Converts a name to camel case: `sweepMost` for `sweep_most`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
