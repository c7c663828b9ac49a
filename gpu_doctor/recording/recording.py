"""What one run left behind: frozen facts in numpy columns, and how they are saved and loaded.

A recording is the contract in the middle of the house. What touches the world writes it (taps, probes); what reads it
is a pure function (vitals, rules, forecast, report). It never holds a live object, so it can be saved on a big GPU
machine and diagnosed on a laptop that has no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from gpu_doctor import formatting
from gpu_doctor.labels import OUTCOME_LABELS
from gpu_doctor.recording import exports, form, npz
from gpu_doctor.recording.place import UNKNOWN
from gpu_doctor.recording.setup import Chore, Flops, Setup, Traffic
from gpu_doctor.recording.steps import STEP_COLUMNS, Column, Steps

if TYPE_CHECKING:
    import pandas as pd

SettingValue: TypeAlias = str | int | float | bool
Settings: TypeAlias = Mapping[str, SettingValue]
"""Knob name -> value; empty means 'as written'."""

OUTCOMES: Final = ("completed", "budget-reached", "interrupted", "stopped", "out-of-memory", "failed", "refused")
CLEAN: Final = OUTCOMES[:2]
"""Outcomes of a run that ended as it should."""
_LATER: Final = ("ours_s", "closures", "gpu_caught_up_s", "gpu_since_s", "gpu_since_steps")
"""Columns of the steps that the first files of version 0.1.0 lack: they were not measured then."""


@dataclass(frozen=True)
class Metric:
    """A quantity that a probe reads, with its unit."""

    name: str
    """As in DESIGN's words, such as `gpu_util_pct`; the suffix carries the unit."""
    unit: str
    """`%`, `bytes`, `W`, `C`, `MHz`, `bytes/s`, `count`, ..."""
    label: str
    """What a person reads in a legend."""
    group: str
    """Where the view draws it: `utilization`, `memory`, or `detail` (recorded, not drawn)."""
    device: int | None = None
    """GPU index (torch's order), or None for the host."""


@dataclass(frozen=True)
class Series:
    """The readings of one metric: `times_s` (seconds after the run began) and `values`, same length."""

    metric: Metric
    times_s: Column
    values: Column


@dataclass(frozen=True)
class Fetch:
    """How the batches of one loader were fetched, measured in the process where it happened (main or workers).

    Sums over `batches` fetches: `wall_s` and `cpu_s` of the whole fetch (all `__getitem__`s and the collate),
    `collate_s` the wall seconds of the collate alone. `walls_s` are the wall seconds of single recent fetches. Of quick
    fetches only some are metered, each of which stands for those before it too; the last ones stand for nothing, so
    `delivered` may be a little more than `batches`.
    """

    loader: str
    """`LoaderSetup.key`."""
    workers: int
    batches: int
    wall_s: float
    cpu_s: float
    collate_s: float
    batch_bytes: float
    """Mean bytes of a batch's tensors, NaN if it holds none."""
    walls_s: Column
    queued_s: float | None = None
    """Seconds of `wall_s` in which the fetching thread could run and waited for a core; None = not measured."""
    read_bytes: float | None = None
    """Bytes read from files (the page cache included) during the fetches; None = not measured."""
    stored_bytes: float | None = None
    """Of `read_bytes`, those that came from the storage itself and not from the page cache; None = not measured."""
    stored_s: float | None = None
    """Of `wall_s`, that of fetches during which anything came from the storage; None = not measured."""
    batch_tensors: float | None = None
    """Mean number of a batch's tensors; None = it holds none, or nobody counted."""
    delivered: int | None = None
    """Batches that the loop got from the loader, metered or not; None = not counted."""
    passes: int | None = None
    """Evaluation passes over the loader that have begun, 0 where it is trained from; None = not counted."""
    ready_batches: float | None = None
    """Batches that the workers had fetched and nobody had taken, mean over the loop's asks but each epoch's first;
    None = no workers, or not counted."""
    empty_share: float | None = None
    """Part of these asks at which there was none."""
    starts: int | None = None
    """How often worker processes were started; None = there are none, or not noted."""
    start_s: float | None = None
    """Seconds of `iter(loader)` at all these starts,"""
    first_s: float | None = None
    """and from the first ask to the first batch after them."""
    ends: int | None = None
    """How often the loop asked on after the last batch, which ends workers that do not stay,"""
    end_s: float | None = None
    """and what that took."""
    collate_cpu_s: float | None = None
    """Of `cpu_s`, that of the collate alone; None = not measured."""
    ready: Column = field(default_factory=lambda: np.empty(0))
    """`ready_batches` at single asks, the first ones of the run; empty = no workers, or not counted."""
    ready_after: Column = field(default_factory=lambda: np.empty(0))
    """How many batches the loop had got before each of these asks."""


BEFORE: Final = "before"
AFTER: Final = "after"


@dataclass(frozen=True)
class LineCost:
    """What one line of the user's code costs, from stack samples of the training thread."""

    file: str
    line: int
    function: str
    text: str
    phase: str
    """Phase in which the samples fell; `other` where in none."""
    share: float
    """Share of the run's sampled wall-clock, 0..1."""
    in_torch: bool = False
    """The samples' innermost Python frame was inside torch: compute called by this line, not Python of the line."""
    outside_torch: bool = False
    """No operator of torch computed when the sample was due: the thread had held Python's lock for a whole switch
    interval (Python ran, or a call that keeps the lock, such as `tolist()`), or it slept (a wait, a file)."""
    in_worker: bool = False
    """Seen in a loader's worker process; `share` is then of the workers' fetch time, not of the loop's wall-clock."""
    before_backward: bool = False
    """Seen in `other` between a forward and the backward after it, where losses are computed."""
    before_forward: bool = False
    """Seen in `other` between the arrival of a loader's batch and the first forward on it."""
    no_grad: bool = False
    """Seen in a forward in training mode that recorded no gradients."""
    pulled: bool = False
    """Reached through a generator, or an iterator's `__next__`, of the user's that the loop pulls from."""


@dataclass(frozen=True)
class Losses:
    """Loss of the first backward of recorded steps: step index, samples seen before it, value (all same length)."""

    step: Column = field(default_factory=lambda: np.empty(0))
    samples: Column = field(default_factory=lambda: np.empty(0))
    value: Column = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True)
class Timed:
    """A stretch of steps of a trial, from an idle device to an idle one: the host waited for it at both ends alone."""

    begin_s: float
    """`Steps.start_s` of the first of them."""
    end_s: float
    """When the last of them ended on the host, which may have been long before the device had done its work."""
    wall_s: float
    """Host seconds from the end of the first wait to the end of the last one."""

    def rows(self, steps: Steps) -> npt.NDArray[np.bool_]:
        """Which rows of some steps of the run lie in it."""
        inside: npt.NDArray[np.bool_] = (steps.start_s >= self.begin_s) & (steps.start_s < self.end_s)
        return inside


@dataclass(frozen=True, repr=False)
class Recording:
    """All that one run left behind. Build one in a test with only `steps`; every other field has an honest default.

    Example:
        >>> import gpu_doctor
        >>> gpu_doctor.load("notebooks/recordings/images-on-a-cpu.npz")
        <Recording of 'images on a CPU': completed, 300 steps in 27.9 s>
    """

    steps: Steps
    settings: Settings = field(default_factory=dict)
    setup: Setup = field(default_factory=Setup)
    outcome: str = "completed"
    """One of OUTCOMES."""
    reason: str = ""
    """One sentence where the outcome is not `completed`: the exception's last line, or why a knob refused."""
    series: tuple[Series, ...] = ()
    fetches: tuple[Fetch, ...] = ()
    lines: tuple[LineCost, ...] = ()
    looks: int | None = None
    """How many stack samples the lines' shares come from; None = not counted."""
    losses: Losses = field(default_factory=Losses)
    around: tuple[LineCost, ...] = ()
    """What lines cost before the first step and after the last one: `phase` is BEFORE or AFTER, `share` of the run's
    duration."""
    chores: tuple[Chore, ...] | None = None
    """Costly calls besides training, dearest first; None = nobody listened."""
    traffic: Traffic | None = None
    """Copies between host and devices; None = there is no device to copy to, or nobody listened."""
    flops: Flops | None = None
    """What a step computes, counted on a trial of the same code; None = not counted."""
    timed: Timed | None = None
    """What a trial on a device that runs behind its host is timed by; None of a user's run, on a CPU, or where the loop
    ended without a moment to wait at."""
    notes: tuple[str, ...] = ()
    name: str = ""
    source: str = ""
    """The cell's text, for the bars beside its lines."""
    started_at: float = 0.0
    """Unix time of the begin."""
    duration_s: float = 0.0
    """Host seconds from begin to close, steps or not."""
    overhead_s: float = 0.0
    """What gpu_doctor itself cost: calibrated cost of the tap events plus CPU seconds of its own threads."""
    peak_bytes: float = float("nan")
    """Peak memory of the run where the loop trains: the allocator's peak on a GPU, the process' RSS on a CPU."""

    def __repr__(self) -> str:
        """One line: its columns would be some thousand."""
        of = f" of {self.name!r}" if self.name else ""
        told = formatting.count(len(self.steps), "step"), formatting.seconds(self.duration_s)
        return f"<Recording{of}: {self.outcome}, {' in '.join(told)}>"

    def __str__(self) -> str:
        """How long, how many steps, under what, how it ended."""
        head = f"{formatting.clean(self.name, 80) or 'recording'}, {formatting.clean(describe(self.settings), 200)}"
        steps = formatting.count(int(self.steps.count.sum()), "step")
        ended = OUTCOME_LABELS.get(self.outcome, formatting.clean(self.outcome, 80))
        return f"{head}: {steps} in {formatting.seconds(self.duration_s)}, {ended}"

    _repr_pretty_ = formatting.pretty

    @property
    def overhead_share(self) -> float | None:
        """Own cost over the run's wall-clock (0..1), None for an empty run."""
        return self.overhead_s / self.duration_s if self.duration_s > 0 else None

    def one_series(self, name: str, device: int | None = None) -> Series | None:
        """The series of a metric by name (and GPU index), or None if it was not read."""
        for one in self.series:
            if one.metric.name == name and (device is None or one.metric.device == device):
                return one
        return None

    def save(self, path: str | Path) -> Path:
        """Writes the recording as a compressed `.npz` with a JSON header, never pickle.

        Returns:
            The path written (with `.npz` added if it had no suffix).

        Raises:
            OSError: if it is a directory or cannot be written; what lay there before is then still there.
        """
        return npz.write(path, *_packed(self))

    def to_pandas(self) -> pd.DataFrame:
        """Returns the steps as a pandas table: a column for each of `Steps`, in its units, NaN = not measured.

        The index is the number of the row's last step; `count` says for how many steps a row of a long run stands.

        Raises:
            ImportError: if pandas is not installed; the message says how to install it.
        """
        return exports.table(self.steps)

    def to_tensorboard(self, logdir: str | Path, diagnosis: object = None) -> Path:
        """Writes the run for TensorBoard: milliseconds a step and by phase, samples a second, machine and loss.

        Args:
            logdir: the run's folder, such as `runs/as-written`; it is created where it is missing.
            diagnosis: what stands under *Text*: `gpu_doctor.diagnose(recording)`, or any other text.

        Returns:
            The folder.

        Raises:
            ImportError: if tensorboard is not installed; the message says how to install it.
            OSError: if the folder cannot be written to.
        """
        readings = ((_gauge(one.metric), one.times_s, one.values) for one in self.series)
        losses = self.losses.step, self.losses.value
        text = None if diagnosis is None else str(diagnosis)
        return exports.write_events(logdir, self.steps, readings, losses, self.started_at, text)


def load(path: str | Path) -> Recording:
    """Reads a recording that `Recording.save` wrote.

    Raises:
        RecordingError: if the file is missing, truncated, not a recording, or from a newer schema.
        TypeError: if it is no path.

    Example:
        >>> import gpu_doctor
        >>> recording = gpu_doctor.load("notebooks/recordings/images-on-a-cpu.npz")
        >>> round(recording.duration_s, 1)
        27.9
    """
    return npz.read(path, lambda arrays, header: _checked(_unpacked(arrays, header)))


def describe(settings: Settings) -> str:
    """Settings in a person's words: `num_workers=4, amp=bf16`, or `as written`."""
    return ", ".join(f"{name}={value}" for name, value in settings.items()) or "as written"


def _gauge(metric: Metric) -> str:
    """The name of a metric, with the number of its GPU."""
    return metric.name if metric.device is None else f"{metric.name}/gpu{metric.device}"


def _packed(recording: Recording) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Arrays and JSON header of a recording; `_unpacked` is its inverse."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    header = {item.name: _plain(getattr(recording, item.name), item.name, arrays) for item in fields(Recording)}
    header["series"] = [one["metric"] for one in header["series"]]
    del header["steps"], header["losses"]  # columns alone
    return arrays, header


def _plain(value: Any, place: str, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    """A value as JSON takes it; its columns go to `arrays`, by their places."""
    if isinstance(value, np.ndarray):
        arrays[place] = np.asarray(value, dtype=np.float64)
        return None
    if is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name), f"{place}.{item.name}", arrays) for item in fields(value)}
    if isinstance(value, tuple):
        return [_plain(one, f"{place}.{number}", arrays) for number, one in enumerate(value)]
    return dict(value) if isinstance(value, Mapping) else value


def _unpacked(arrays: Mapping[str, npt.NDArray[Any]], header: dict[str, Any]) -> Recording:
    """The recording of `_packed`'s arrays and header; unknown keys are ignored."""
    lacking = np.full(len(arrays["steps.wall_s"]), np.nan)
    header["steps"] = dict.fromkeys(_LATER, lacking)
    header["series"] = [{"metric": one} for one in header["series"]]
    header["setup"].setdefault("host", UNKNOWN)
    header["losses"] = {}
    for place, column in arrays.items():
        inner = header
        *path, name = place.split(".")
        for part in path:
            inner = inner[int(part)] if isinstance(inner, list) else inner[part]
        inner[name] = column
    made: Recording = form.made(Recording, header)
    return made


def _checked(recording: Recording) -> Recording:
    """Lets a recording pass whose columns belong together.

    Raises:
        ValueError: if they do not; the message names them.
    """
    steps, losses = recording.steps, recording.losses
    _alike("steps", *(getattr(steps, name) for name in STEP_COLUMNS))
    if not np.all(steps.count > 0):  # NaN is no count
        raise ValueError("steps.count")
    if not all(one.share >= 0.0 for one in (*recording.lines, *recording.around)):
        raise ValueError("lines.share")
    if not 0.0 < recording.setup.usable_cores < np.inf:
        raise ValueError("setup.usable_cores")
    _alike("losses", losses.step, losses.samples, losses.value)
    for one in recording.series:
        _alike("series", one.times_s, one.values)
    for fetch in recording.fetches:
        _alike("fetches", fetch.ready, fetch.ready_after)
    return recording


def _alike(name: str, *columns: Column) -> None:
    """Columns of one length."""
    if len({len(one) for one in columns}) > 1:
        raise ValueError(name)
