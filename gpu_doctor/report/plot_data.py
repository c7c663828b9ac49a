"""The lines of the live and static plots: points of a run, thinned to what a page can hold, in increments.

A run is drawn in a layer: `base` (the run, or a trial's baseline) or `trial` (a candidate, drawn over it). A layer
reads News, turns step rows and readings into points, and stores at most about MOST_POINTS of a line, however long the
run is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from gpu_doctor.recording import Column, Cursor, Feed, Metric, News, Series, Steps, series_key
from gpu_doctor.svg import PHASE_COLOURS

MOST_POINTS: Final = 1000
"""Largest number of points of a line on the page."""
MOST_MARKS: Final = 40
LATEST: Final = 256
"""Largest number of rows held back for their GPU timings, which arrive some steps after the step ended."""
UNITS: Final = {"utilization": "%", "memory": "GiB", "latency": "ms per batch"}
PLOTS: Final = tuple(UNITS)
INK: Final = "ink"
"""Colour name that the page replaces by its theme's text colour."""

_EMPTY: Final[Column] = np.empty(0)


@dataclass(frozen=True)
class Line:
    """One line of a plot: `key` names its data, the other fields style it."""

    key: str
    plot: str
    label: str
    title: str
    """Long form of the label."""
    colour: str
    dash: str = "solid"
    scale: float = 1.0
    """Factor that converts a value to the plot's unit."""
    order: int = 99


STEP: Final = Line("step", "latency", "step", "a whole step, per batch", INK, order=2)
WAIT: Final = Line("wait", "latency", "wait", "the loop waits for a batch", PHASE_COLOURS["data_wait"], order=0)
HIDDEN: Final = Line(
    "hidden", "latency", "hidden wait", "the GPU still had work meanwhile", "#E69F00", "dashed", order=1
)
_GIB: Final = 1.0 / (1 << 30)
_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_KNOWN: Final = {
    "gpu_util_pct": ("GPU", "#0072B2", "solid"),
    "sm_active_pct": ("SM", "#56B4E9", "dashed"),
    "cpu_util_pct": ("CPU", "#E69F00", "solid"),
    "torch_allocated_bytes": ("allocated", "#0072B2", "solid"),
    "torch_reserved_bytes": ("reserved", "#56B4E9", "dashed"),
    "gpu_memory_used_bytes": ("GPU used", "#009E73", "dotdash"),
    "process_rss_bytes": ("process", "#E69F00", "solid"),
    "workers_rss_bytes": ("workers", "#CC79A7", "dashed"),
}
"""Reading -> label, colour and dash of its line."""


def title(plot: str, lines: Iterable[Line]) -> str:
    """Returns the title of a plot; without a GPU line, "utilization" becomes "CPU utilization"."""
    if plot == "latency":
        return "loader latency"
    known = [line.key for line in lines]
    cpu = plot == "utilization" and known and not any(key.startswith("gpu_util_pct") for key in known)
    return "CPU utilization" if cpu else plot


def line_of(metric: Metric, several_gpus: bool = False) -> Line | None:
    """Returns the line that draws a metric, or None if the metric is not plotted.

    Args:
        metric: metric of a series; one that is missing in `_KNOWN` gets a colour derived from its name.
        several_gpus: True to add the GPU's index to the label and to vary the colour by it.
    """
    if metric.group not in ("utilization", "memory"):
        return None
    names = list(_KNOWN)
    usual = metric.label.partition(",")[0].partition(" (")[0], _COLOURS[sum(metric.name.encode()) % 6], "dotted"
    label, colour, dash = _KNOWN.get(metric.name, usual)
    order = names.index(metric.name) if metric.name in names else len(names)
    if several_gpus and metric.device is not None:
        label = f"{label} {metric.device}"
        colour = _COLOURS[(_COLOURS.index(colour) + metric.device) % 6]
    scale = _GIB if metric.unit == "bytes" else 1.0
    key = series_key(metric)
    place = 100 * order + (metric.device or 0)
    return Line(key, metric.group, label, metric.label or label, colour, dash, scale, place)


def expected(gpus: Iterable[int]) -> tuple[Line, ...]:
    """Returns the lines that a run on this machine is expected to have.

    The figures are drawn with these lines before the run, because drawing them again takes about 0.1 s. A line without
    readings stays empty and has no legend.

    Args:
        gpus: indices of the machine's GPUs.
    """
    indices = tuple(gpus)
    lines = [STEP, WAIT, HIDDEN] if indices else [STEP, WAIT]
    for name in _KNOWN:
        unit, group = ("%", "utilization") if name.endswith("_pct") else ("bytes", "memory")
        on_host = name.startswith(("cpu_", "process_", "workers_"))
        for device in (None,) if on_host else indices:
            line = line_of(Metric(name, unit, "", group, device), len(indices) > 1)
            lines += [line] if line is not None else []
    return in_order(lines)


def in_order(lines: Iterable[Line]) -> tuple[Line, ...]:
    """Sorts lines by plot, and within a plot in the order of the legend."""
    return tuple(sorted(lines, key=lambda line: (PLOTS.index(line.plot), line.order, line.key)))


def thin(x: Column, y: Column, most: int) -> tuple[Column, Column]:
    """Thins a line to about `most` points with the same outline: the lowest and highest point of every stretch.

    A million points take a few milliseconds.

    Args:
        x: ascending values, shape (n,).
        y: values, shape (n,); NaN is a gap and stays one.
        most: number of points to return, at least 2.

    Returns:
        x and y of the points, shapes (k,) with k <= most + 1. The last point is always among them.
    """
    n = len(x)
    if n <= most:
        return x, y
    stretch = -(-n // (most // 2))
    rows = -(-n // stretch)
    padded = np.full(rows * stretch, np.nan)
    padded[:n] = y
    blocks = padded.reshape(rows, stretch)
    gap = np.isnan(blocks)
    low = np.where(gap, np.inf, blocks).argmin(axis=1)
    high = np.where(gap, -np.inf, blocks).argmax(axis=1)
    # A stretch of nothing but NaN gives its first point twice: the gap survives as one NaN.
    base = np.arange(rows) * stretch
    at = np.unique(np.concatenate([base + low, base + high, [n - 1]]).clip(max=n - 1))
    return x[at], y[at]


def seconds_of(steps: Steps, clocked: bool) -> dict[Line, Column]:
    """Returns host seconds per row: the step without evaluation, the data wait, and the wait hidden behind GPU work.

    Args:
        steps: rows of a run.
        clocked: True if the run has GPU timings.
    """
    found = {STEP: steps.training_s, WAIT: steps.data_wait_s}
    if clocked:
        read = np.where(steps.device_steps > 0, steps.device_steps, np.nan)
        found[HIDDEN] = steps.data_wait_s - steps.exposed_wait_s * steps.count / read
    return found


class Points:
    """The stored points of one line, with a record of which ones the page already has."""

    def __init__(self, most: int = MOST_POINTS) -> None:
        self._most = most
        self._bucket_s = 0.0
        self.x, self.y = _EMPTY, _EMPTY
        self._sent = 0
        self._again = True

    def add(self, x: Column, y: Column) -> None:
        """Appends points, which must be later than all stored ones.

        Once a line has been thinned, new points are thinned to the same density.
        """
        if not len(x):
            return
        if self._bucket_s > 0:
            x, y = thin(x, y, max(4, 2 * int((x[-1] - x[0]) / self._bucket_s) + 2))
        self.x, self.y = np.concatenate([self.x, x]), np.concatenate([self.y, y])
        if len(self.x) > self._most:
            self.x, self.y = thin(self.x, self.y, self._most // 2)
            self._bucket_s = float(self.x[-1] - self.x[0]) / max(len(self.x) // 2, 1)
            self._again = True

    def take(self, everything: bool = False) -> tuple[bool, Column, Column]:
        """Returns the points that the page lacks.

        Args:
            everything: True to return all points.

        Returns:
            True if the points replace those on the page, then their x and y.
        """
        whole = self._again or everything
        start = 0 if whole else self._sent
        self._again, self._sent = False, len(self.x)
        return whole, self.x[start:], self.y[start:]


@dataclass(frozen=True)
class Marks:
    """Moments of a run that are marked on the plots, in seconds after its start."""

    epochs: tuple[float, ...] = ()
    evaluations: tuple[float, ...] = ()


class Layer:
    """One run on the plots: reads the run's feed and stores its lines."""

    def __init__(self, feed: Feed, name: str = "") -> None:
        """Starts an empty layer.

        Args:
            feed: source of the run's steps and readings.
            name: name of the run in the legend.
        """
        self.name = name
        self.lines: dict[str, Line] = {}
        self.tails: dict[str, Points] = {}
        self.marks = Marks()
        self.elapsed_s = 0.0
        self._feed: Feed | None = feed
        """Source of the run's data; None once all of it was read, because a recorder holds far more memory than its
        lines."""
        self._cursor = Cursor()
        self._metrics: dict[str, Metric] = {}
        self._last_epoch, self._evaluating = 0.0, False
        self.clocked = False
        """True if the run has GPU timings."""

    def read(self) -> None:
        """Reads the new rows and readings of the feed and adds their points."""
        if self._feed is None:
            return
        news = self._feed.news(self._cursor)
        if news.done:
            self._feed = None
        steps = self._settled(news)
        self._cursor = replace(news.cursor, rows=news.cursor.rows - (len(news.steps) - len(steps)))
        self.elapsed_s = news.elapsed_s
        if news.reset:
            self.tails.update({line.key: Points() for line in (STEP, WAIT, HIDDEN) if line.key in self.tails})
            self.marks, self._last_epoch, self._evaluating = Marks(), 0.0, False
        for series in news.series:
            self._metrics.setdefault(series_key(series.metric), series.metric)
        for series in news.series:
            self._add_readings(series)
        if len(steps):
            self._add_steps(steps)
            self._add_marks(steps)

    def _settled(self, news: News) -> Steps:
        """Returns the new rows without the newest ones whose GPU timings have not arrived yet."""
        steps = news.steps
        read = np.flatnonzero(steps.device_steps > 0)
        self.clocked = self.clocked or len(read) > 0
        if not self.clocked or news.done:
            return steps
        last = int(read[-1]) + 1 if len(read) else 0
        return steps.rows(0, max(last, len(steps) - LATEST))

    def _add_readings(self, series: Series) -> None:
        """Adds the readings of one metric. A memory metric that was always 0 (no workers, say) gets no line."""
        key = series_key(series.metric)
        line = line_of(series.metric, self._several)
        if line is None:
            return
        self._points_of(key).add(series.times_s, series.values * line.scale)
        if key not in self.lines and (line.plot != "memory" or np.nanmax(series.values, initial=0.0) > 0):
            self.lines[key] = line

    @property
    def _several(self) -> bool:
        return len({metric.device for metric in self._metrics.values()} - {None}) > 1

    def _points_of(self, key: str) -> Points:
        """Returns the stored points of a line, which it makes the first time."""
        if key not in self.tails:
            self.tails[key] = Points()
        return self.tails[key]

    def _add_steps(self, steps: Steps) -> None:
        """Adds the times of new steps, in milliseconds per batch."""
        end = steps.start_s + steps.wall_s
        for line, seconds in seconds_of(steps, self.clocked).items():
            # A loop without a loader has no wait: it gets no line instead of a line at zero.
            if line.key in self.lines or (np.nansum(seconds) > 0 if line is WAIT else not np.isnan(seconds).all()):
                self.lines[line.key] = line
                self._points_of(line.key).add(end, 1e3 * steps.per_batch(seconds))

    def _add_marks(self, steps: Steps) -> None:
        epochs = np.concatenate([[self._last_epoch], steps.epoch])
        begun = steps.start_s[np.diff(epochs) > 0]
        evaluated = np.concatenate([[self._evaluating], steps.evaluation_s > 0]).astype(bool)
        started = steps.start_s[evaluated[1:] & ~evaluated[:-1]]
        self._last_epoch, self._evaluating = float(steps.epoch[-1]), bool(evaluated[-1])
        if len(begun) or len(started):
            self.marks = Marks(_few(self.marks.epochs, begun), _few(self.marks.evaluations, started))

    def top(self, plot: str) -> float | None:
        """Returns the end of a plot's y axis: above all points of memory, above nearly all points of latency.

        Latency ignores outliers because a first step that loads a library takes a hundred times as long as a normal
        step. None if the plot has no points.
        """
        parts = [self.tails[key].y for key, line in self.lines.items() if line.plot == plot and key in self.tails]
        known = np.concatenate(parts) if parts else _EMPTY
        known = known[np.isfinite(known)]
        if not len(known):
            return None
        if plot == "memory":
            return 1.12 * float(known.max())
        steps = self.tails["step"].y if "step" in self.tails else known
        steps = steps[np.isfinite(steps)]
        return 1.3 * float(np.percentile(steps if len(steps) else known, 97))


def _few(before: tuple[float, ...], now: Column) -> tuple[float, ...]:
    """Appends moments; drops every second one until at most MOST_MARKS are left."""
    moments = (*before, *now.round(3).tolist())
    while len(moments) > MOST_MARKS:
        moments = moments[::2]
    return moments
