"""The recording of one run, made of frozen facts and numpy columns, and its saving and loading.

Code that observes a run (taps, probes) writes a recording; pure functions (vitals, rules, forecast, report) read it. It
never holds a live object, so it can be saved on a large GPU machine and diagnosed on a laptop without torch.
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
"""Value of each knob by its name; empty for a run of the cell as written."""

OUTCOMES: Final = ("completed", "budget-reached", "interrupted", "stopped", "out-of-memory", "failed", "refused")
"""The ways in which a run can end."""
CLEAN: Final = OUTCOMES[:2]
"""Outcomes of a run that ended as planned."""
_LATER: Final = ("ours_s", "closures", "gpu_caught_up_s", "gpu_since_s", "gpu_since_steps")
"""Columns of the steps that the first files of version 0.1.0 lack, because they were not measured then."""


@dataclass(frozen=True)
class Metric:
    """A quantity that a probe reads, with its unit."""

    name: str
    """Name such as `gpu_util_pct`; its suffix carries the unit."""
    unit: str
    """`%`, `bytes`, `W`, `C`, `MHz`, `bytes/s`, `count`, ..."""
    label: str
    """Text for a legend."""
    group: str
    """Chart in which a view draws it: `utilization` or `memory`; `detail` is recorded but not drawn."""
    device: int | None = None
    """GPU index (torch's order), or None for the host."""


@dataclass(frozen=True)
class Series:
    """Readings of one metric: `times_s`, in seconds after the run began, and `values`, of the same length."""

    metric: Metric
    times_s: Column
    values: Column


@dataclass(frozen=True)
class Fetch:
    """The fetches of one loader's batches, measured in the processes that made them (main or workers).

    `wall_s`, `cpu_s` and `collate_s` are sums over `batches` fetches. Of quick fetches only some are timed, and each of
    these also counts for the fetches before it that were not. The last fetches may remain uncounted, so `delivered` may
    be a little more than `batches`.
    """

    loader: str
    """`LoaderSetup.key` of the loader."""
    workers: int
    """Number of worker processes, 0 if the training process fetches."""
    batches: int
    """Number of fetches in the sums."""
    wall_s: float
    """Wall-clock time of the fetches, with all `__getitem__` calls and the collate, in s."""
    cpu_s: float
    """CPU time of the fetches, in s."""
    collate_s: float
    """Wall-clock time of the collate alone, in s."""
    batch_bytes: float
    """Mean size of a batch's tensors in bytes, NaN if a batch has none."""
    walls_s: Column
    """Wall-clock times of single recent fetches, in s."""
    queued_s: float | None = None
    """Part of `wall_s` in which the fetching thread was ready and waited for a core, in s; None = not measured."""
    read_bytes: float | None = None
    """Bytes read from files (the page cache included) during the fetches; None = not measured."""
    stored_bytes: float | None = None
    """Part of `read_bytes` that came from the storage itself, not from the page cache; None = not measured."""
    stored_s: float | None = None
    """Part of `wall_s` in fetches that read anything from the storage, in s; None = not measured."""
    batch_tensors: float | None = None
    """Mean number of tensors in a batch; None = a batch has none, or not counted."""
    delivered: int | None = None
    """Number of batches that the loader delivered to the loop, timed or not; None = not counted."""
    passes: int | None = None
    """Number of evaluation passes over the loader that have begun, 0 for a training loader; None = not counted."""
    ready_batches: float | None = None
    """Mean number of batches that the workers had ready when the loop requested one, without each epoch's first
    request; None = no workers, or not counted."""
    empty_share: float | None = None
    """Share (0 to 1) of these requests at which no batch was ready."""
    starts: int | None = None
    """Number of times that worker processes were started; None = no workers, or not counted."""
    start_s: float | None = None
    """Time of `iter(loader)` at all these starts, in s."""
    first_s: float | None = None
    """Time from the first request to the first batch after all these starts, in s."""
    ends: int | None = None
    """Number of requests after the last batch, which stop workers that are not persistent."""
    end_s: float | None = None
    """Time of these requests, in s."""
    collate_cpu_s: float | None = None
    """Part of `cpu_s` in the collate, in s; None = not measured."""
    ready: Column = field(default_factory=lambda: np.empty(0))
    """Number of ready batches at each of the run's first requests; empty = no workers, or not counted."""
    ready_after: Column = field(default_factory=lambda: np.empty(0))
    """Number of batches delivered before each of these requests."""


BEFORE: Final = "before"
AFTER: Final = "after"


@dataclass(frozen=True)
class LineCost:
    """The cost of one line of the user's code, from stack samples of the training thread."""

    file: str
    line: int
    function: str
    text: str
    phase: str
    """Phase in which the samples were taken; `other` outside of all phases."""
    share: float
    """Share of the run's sampled wall-clock, 0..1."""
    in_torch: bool = False
    """True if the innermost Python frame was inside torch: the line called torch, and did not run Python itself."""
    outside_torch: bool = False
    """True if no operator of torch computed when the sample was due: the thread had held Python's lock for a whole
    switch interval (Python ran, or a call that keeps the lock, such as `tolist()`), or it slept (a wait, a file)."""
    in_worker: bool = False
    """True if it ran in a loader's worker process; `share` is then of the workers' fetch time, not of the loop's
    wall-clock."""
    before_backward: bool = False
    """True if it ran in `other` between a forward and the next backward, where losses are computed."""
    before_forward: bool = False
    """True if it ran in `other` between the delivery of a batch and the first forward on it."""
    no_grad: bool = False
    """True if it ran in a forward in training mode that recorded no gradients."""
    pulled: bool = False
    """True if it was called through a generator, or an iterator's `__next__`, of the user's that the loop reads."""


@dataclass(frozen=True)
class Losses:
    """Loss of the first backward in each recorded step: step index, samples before it, and value, of equal length."""

    step: Column = field(default_factory=lambda: np.empty(0))
    samples: Column = field(default_factory=lambda: np.empty(0))
    value: Column = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True)
class Timed:
    """A series of steps in a trial that begins and ends with an idle device: the host waited for it only then."""

    begin_s: float
    """`Steps.start_s` of the first step."""
    end_s: float
    """End of the last step on the host, in s after the run began; the device may have finished long after it."""
    wall_s: float
    """Host time from the end of the first wait to the end of the last one, in s."""

    def rows(self, steps: Steps) -> npt.NDArray[np.bool_]:
        """Returns a mask of the rows that lie in the series."""
        inside: npt.NDArray[np.bool_] = (steps.start_s >= self.begin_s) & (steps.start_s < self.end_s)
        return inside


@dataclass(frozen=True, repr=False)
class Recording:
    """The record of one run. A test can build one from `steps` alone; the defaults of the other fields claim nothing.

    Example:
        >>> import gpu_doctor
        >>> gpu_doctor.load("notebooks/recordings/images-on-a-cpu.npz")
        <Recording of 'images on a CPU': completed, 300 steps in 27.9 s>
    """

    steps: Steps
    settings: Settings = field(default_factory=dict)
    setup: Setup = field(default_factory=Setup)
    outcome: str = "completed"
    """One of `OUTCOMES`."""
    reason: str = ""
    """Sentence about an outcome other than `completed`: the exception's last line, or why a knob refused."""
    series: tuple[Series, ...] = ()
    fetches: tuple[Fetch, ...] = ()
    lines: tuple[LineCost, ...] = ()
    looks: int | None = None
    """Number of stack samples behind the lines' shares; None = not counted."""
    losses: Losses = field(default_factory=Losses)
    around: tuple[LineCost, ...] = ()
    """Costs of lines before the first step and after the last: `phase` is BEFORE or AFTER, `share` of the run's
    duration."""
    chores: tuple[Chore, ...] | None = None
    """Costly calls that are not training, the longest first; None = not recorded."""
    traffic: Traffic | None = None
    """Copies between host and devices; None = there is no device to copy to, or not recorded."""
    flops: Flops | None = None
    """Operations of a step, counted on a trial of the same code; None = not counted."""
    timed: Timed | None = None
    """The steps by which a trial is timed on a device that runs behind its host; None for a user's run, on a CPU, or if
    the loop ended before the host could wait for the device."""
    notes: tuple[str, ...] = ()
    """Sentences about parts of the run that could not be measured."""
    name: str = ""
    source: str = ""
    """Text of the cell, for the bars next to its lines."""
    started_at: float = 0.0
    """Unix time at which the run began."""
    duration_s: float = 0.0
    """Host time from begin to end of the run, in s, with or without steps."""
    overhead_s: float = 0.0
    """Cost of gpu_doctor itself, in s: the calibrated cost of the tap events, plus the CPU time of its own threads."""
    peak_bytes: float = float("nan")
    """Peak memory of the run in bytes: of the allocator on a GPU, of the process (RSS) on a CPU."""

    def __repr__(self) -> str:
        """Returns one line, for the columns would fill some thousand."""
        of = f" of {self.name!r}" if self.name else ""
        length = formatting.count(len(self.steps), "step"), formatting.seconds(self.duration_s)
        return f"<Recording{of}: {self.outcome}, {' in '.join(length)}>"

    def __str__(self) -> str:
        """Returns the name, settings, number of steps, duration and outcome of the run."""
        head = f"{formatting.clean(self.name, 80) or 'recording'}, {formatting.clean(describe(self.settings), 200)}"
        steps = formatting.count(int(self.steps.count.sum()), "step")
        ended = OUTCOME_LABELS.get(self.outcome, formatting.clean(self.outcome, 80))
        return f"{head}: {steps} in {formatting.seconds(self.duration_s)}, {ended}"

    _repr_pretty_ = formatting.pretty

    @property
    def overhead_share(self) -> float | None:
        """Share (0 to 1) of the run's wall-clock that gpu_doctor itself cost; None for an empty run."""
        return self.overhead_s / self.duration_s if self.duration_s > 0 else None

    def one_series(self, name: str, device: int | None = None) -> Series | None:
        """Returns the series of a metric by its name and GPU index, or None if it was not read."""
        for series in self.series:
            if series.metric.name == name and (device is None or series.metric.device == device):
                return series
        return None

    def save(self, path: str | Path) -> Path:
        """Writes the recording as a compressed `.npz` with a JSON header, never pickle.

        Returns:
            The path written (with `.npz` added if it had no suffix).

        Raises:
            OSError: If the path is a directory or cannot be written; an existing file is then unchanged.
        """
        return npz.write(path, *_packed(self))

    def to_pandas(self) -> pd.DataFrame:
        """Returns the steps as a pandas table with the columns of `Steps`, in their units; NaN = not measured.

        The index is the number of the row's last step; `count` is the number of steps that a row of a long run covers.

        Raises:
            ImportError: If pandas is not installed; the message says how to install it.
        """
        return exports.table(self.steps)

    def to_tensorboard(self, logdir: str | Path, diagnosis: object = None) -> Path:
        """Writes the run for TensorBoard: milliseconds a step and by phase, samples a second, machine and loss.

        Args:
            logdir: The run's folder, such as `runs/as-written`; it is created if it is missing.
            diagnosis: Text shown under *Text*: `gpu_doctor.diagnose(recording)`, or any other.

        Returns:
            The folder.

        Raises:
            ImportError: If tensorboard is not installed; the message says how to install it.
            OSError: If the folder cannot be written to.
        """
        readings = ((_gauge(series.metric), series.times_s, series.values) for series in self.series)
        losses = self.losses.step, self.losses.value
        text = None if diagnosis is None else str(diagnosis)
        return exports.write_events(logdir, self.steps, readings, losses, self.started_at, text)


def load(path: str | Path) -> Recording:
    """Reads a recording that `Recording.save` wrote.

    Raises:
        RecordingError: If the file is missing, truncated, not a recording, or from a newer schema.
        TypeError: If `path` is not a path.

    Example:
        >>> import gpu_doctor
        >>> recording = gpu_doctor.load("notebooks/recordings/images-on-a-cpu.npz")
        >>> round(recording.duration_s, 1)
        27.9
    """
    return npz.read(path, lambda arrays, header: _checked(_unpacked(arrays, header)))


def describe(settings: Settings) -> str:
    """Returns settings as text: `num_workers=4, amp=bf16`, or `as written` for none."""
    return ", ".join(f"{name}={value}" for name, value in settings.items()) or "as written"


def _gauge(metric: Metric) -> str:
    """Returns a metric's name for TensorBoard, with the GPU's index if it has one."""
    return metric.name if metric.device is None else f"{metric.name}/gpu{metric.device}"


def _packed(recording: Recording) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Splits a recording into arrays and a JSON header; `_unpacked` is the inverse."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    header = {item.name: _plain(getattr(recording, item.name), item.name, arrays) for item in fields(Recording)}
    header["series"] = [series["metric"] for series in header["series"]]
    del header["steps"], header["losses"]  # they have nothing but columns
    return arrays, header


def _plain(value: Any, place: str, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    """Converts a value for JSON, and moves its columns to `arrays` under their dotted places."""
    if isinstance(value, np.ndarray):
        arrays[place] = np.asarray(value, dtype=np.float64)
        return None
    if is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name), f"{place}.{item.name}", arrays) for item in fields(value)}
    if isinstance(value, tuple):
        return [_plain(item, f"{place}.{number}", arrays) for number, item in enumerate(value)]
    return dict(value) if isinstance(value, Mapping) else value


def _unpacked(arrays: Mapping[str, npt.NDArray[Any]], header: dict[str, Any]) -> Recording:
    """Makes a recording from `_packed`'s arrays and header; unknown keys are ignored."""
    lacking = np.full(len(arrays["steps.wall_s"]), np.nan)
    header["steps"] = dict.fromkeys(_LATER, lacking)
    header["series"] = [{"metric": metric} for metric in header["series"]]
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
    """Returns the recording if its columns and counts are consistent.

    Raises:
        ValueError: If they are not; the message names them.
    """
    steps, losses = recording.steps, recording.losses
    _check_lengths("steps", *(getattr(steps, name) for name in STEP_COLUMNS))
    if not np.all(steps.count > 0):  # also False for NaN
        raise ValueError("steps.count")
    if not all(line.share >= 0.0 for line in (*recording.lines, *recording.around)):
        raise ValueError("lines.share")
    if not 0.0 < recording.setup.usable_cores < np.inf:
        raise ValueError("setup.usable_cores")
    _check_lengths("losses", losses.step, losses.samples, losses.value)
    for series in recording.series:
        _check_lengths("series", series.times_s, series.values)
    for fetch in recording.fetches:
        _check_lengths("fetches", fetch.ready, fetch.ready_after)
    return recording


def _check_lengths(name: str, *columns: Column) -> None:
    """Raises ValueError with `name` if the columns differ in length."""
    if len({len(column) for column in columns}) > 1:
        raise ValueError(name)
