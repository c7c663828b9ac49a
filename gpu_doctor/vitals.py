"""The numbers read off a recording: some dozens, each maybe None. None means not measured and is never zero.

Shares are of the wall-clock after warm-up, made of sums (a loader with n workers delivers in bursts: the median wait
is 0 while the mean is large), and each of one clock only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpu_doctor.recording import Fetch, LineCost, LoaderSetup, Recording, SettingValue, Setup
from gpu_doctor.steps import TRAINING, Steps, iter_phases


@dataclass(frozen=True)
class Vitals:
    """What `measure` reads off a recording. Every field but the counts may be None = not measured."""

    # how much was measured
    steps: int = 0
    """Steps (optimizer steps, or batches of a loop without optimizer), warm-up included."""
    measured_steps: int = 0
    """Steps after warm-up: what every share below is made of."""
    warmup_steps: int = 0
    warmup_s: float | None = None
    samples: float | None = None
    """Training samples in all steps."""
    samples_per_s: float | None = None
    """After warm-up."""
    steps_per_s: float | None = None
    step_wall_s: float | None = None
    """Mean host seconds of a step after warm-up."""
    samples_per_step: float | None = None
    batches_per_step: float | None = None

    # where the wall-clock went (host clock, 0..1; they sum to 1 with other_share)
    data_wait_share: float | None = None
    transfer_share: float | None = None
    forward_share: float | None = None
    backward_share: float | None = None
    optimizer_share: float | None = None
    sync_share: float | None = None
    evaluation_share: float | None = None
    other_share: float | None = None
    loss_share: float | None = None
    """Part of other_share: between forward and backward."""
    edge_share: float | None = None
    """Part of data_wait_share: worker start and first batch, at epoch edges."""

    # what it cost the device
    exposed_wait_share: float | None = None
    """Part of the wall-clock in which the device had nothing to do because of the loader: on a CPU device the wait,
    on a GPU the smaller of wait and GPU gap."""
    exposed_transfer_share: float | None = None
    gpu_gap_share: float | None = None
    """Device-clock gap between steps over wall-clock."""
    gpu_busy_share: float | None = None
    """1 - gap share, over the steps with device readings; an upper bound of busy time (gaps inside a step unseen)."""
    queue_empty_share: float | None = None
    """Share of steps at whose end the GPU had already finished everything that was launched."""

    # the fetch of a batch, in the process where it runs (means)
    fetch_wall_s: float | None = None
    fetch_cpu_s: float | None = None
    collate_s: float | None = None
    batch_bytes: float | None = None
    workers: int | None = None
    """num_workers of the training loader during this run."""
    consumer_s: float | None = None
    """Mean seconds per step that are not data wait."""
    consumer_cpu_s: float | None = None
    """CPU seconds per step of the training process without its own fetching (all threads)."""

    # copies
    transfers_per_step: float | None = None
    transfer_bytes_per_step: float | None = None
    pageable_share: float | None = None
    """Of the host-to-device copies that were looked at, the share from pageable memory."""

    # machine readings (means over the run after warm-up unless said otherwise)
    gpu_util_pct: float | None = None
    tensor_active_pct: float | None = None
    cpu_util_pct: float | None = None
    """Of all usable cores, machine-wide."""
    peak_bytes: float | None = None
    memory_total_bytes: float | None = None
    peak_share: float | None = None
    """peak_bytes over the device's memory, GPU only."""
    usable_cores: float = 1.0

    overhead_share: float | None = None
    final_loss: float | None = None
    on_gpu: bool = False
    loader: LoaderSetup | None = None
    """The training loader, None if the loop pulls from none."""
    setup: Setup = field(default_factory=Setup)
    settings: Mapping[str, SettingValue] = field(default_factory=dict)
    lines: tuple[LineCost, ...] = ()
    """Line costs, dearest first."""
    source: str = ""


WARMUP_FACTOR = 2.0
"""A leading step is warm-up while it takes more than so many times the median of the rest (worker start, autotune)."""
WARMUP_SHARE = 0.2
WARMUP_MOST = 50
FEWEST_STEPS = 5
"""Below so many steps there is no warm-up to tell apart, and no verdict."""


def warmup_rows(steps: Steps, workers: int = 0) -> int:
    """How many leading rows are warm-up.

    At least the first step (iterator creation, first launches), with workers also as many as there are workers (their
    first batches arrive together), then on while a step takes more than twice the median of the second half; at most
    a fifth of the rows and at most 50.

    Args:
        steps: the rows judged, all of one kind. workers: num_workers of the training loader.
    """
    n = len(steps)
    if n < FEWEST_STEPS:
        return 0
    most = max(1, min(int(n * WARMUP_SHARE), WARMUP_MOST))
    head = slice(0, most + 1)
    usual = (steps.wall_s - steps.evaluation_s)[head] / steps.count[head]
    steady = float(np.median((steps.wall_s[n // 2 :] - steps.evaluation_s[n // 2 :]) / steps.count[n // 2 :]))
    rows = min(1 + workers, most)
    while rows < most and usual[rows] > WARMUP_FACTOR * steady:
        rows += 1
    return rows


def measure(recording: Recording) -> Vitals:
    """Reads the vitals off a recording.

    Args:
        recording: of a run or a trial, complete or so far.

    Returns:
        Vitals whose shares are of the wall-clock after warm-up; whatever was not measured is None.
    """
    steps = _judged(recording.steps)
    loader = recording.setup.training_loader
    fetch = next((one for one in recording.fetches if loader is not None and one.loader == loader.key), None)
    warm = warmup_rows(steps, loader.num_workers if loader is not None else 0)
    rest = steps.rows(warm)
    found: dict[str, Any] = _machine(recording, float(rest.start_s[0]) if len(rest) else 0.0) | {
        "steps": int(steps.count.sum()),
        "warmup_steps": int(steps.count[:warm].sum()),
        "measured_steps": int(rest.count.sum()),
        "warmup_s": float(steps.wall_s[:warm].sum()) if warm else None,
        "samples": _number(steps.samples.sum()) if len(steps) else None,
        "usable_cores": recording.setup.usable_cores,
        "overhead_share": recording.overhead_share,
        "on_gpu": recording.setup.on_gpu,
        "loader": loader,
        "workers": fetch.workers if fetch is not None else loader.num_workers if loader is not None else None,
        "final_loss": _number(recording.losses.value[-1]) if len(recording.losses.value) else None,
        "setup": recording.setup,
        "settings": recording.settings,
        "lines": recording.lines,
        "source": recording.source,
    }
    wall_s = float(rest.wall_s.sum()) if len(rest) else 0.0
    if wall_s > 0:
        found |= _shares(rest, wall_s) | _per_step(rest, wall_s) | _device(rest, recording.setup.on_gpu)
        found |= _fetching(rest, fetch, found["batches_per_step"])
    return Vitals(**found)


def _judged(steps: Steps) -> Steps:
    """The training steps; the batches of a loop without optimizer only where there is no training step at all."""
    training = steps.kind == TRAINING
    return steps.where(training) if training.any() and not training.all() else steps


def _number(value: Any) -> float | None:
    """A float, or None for NaN."""
    return None if np.isnan(value) else float(value)


def _shares(rest: Steps, wall_s: float) -> dict[str, float | None]:
    """Each phase over the wall-clock; a phase that was measured in no step is None."""
    sums = {phase: seconds.sum() for phase, seconds in iter_phases(rest)}
    shares = {f"{phase}_share": _number(seconds / wall_s) for phase, seconds in sums.items()}
    return shares | {
        "loss_share": _number(rest.loss_s.sum() / wall_s),
        "edge_share": _number(rest.edge_s.sum() / wall_s),
    }


def _per_step(rest: Steps, wall_s: float) -> dict[str, float | None]:
    count = float(rest.count.sum())
    transfers = rest.transfers.sum()
    return {
        "samples_per_s": _number(rest.samples.sum() / wall_s),
        "steps_per_s": count / wall_s,
        "step_wall_s": wall_s / count,
        "samples_per_step": _number(rest.samples.sum() / count),
        "batches_per_step": _number(rest.batches.sum() / count),
        "consumer_s": _number((rest.wall_s - rest.data_wait_s).sum() / count),
        "transfers_per_step": _number(transfers / count),
        "transfer_bytes_per_step": _number(rest.transfer_bytes.sum() / count),
        "pageable_share": _number(rest.pageable.sum() / transfers) if transfers > 0 else None,
    }


def _device(rest: Steps, on_gpu: bool) -> dict[str, float | None]:
    """What the loop cost the device: host shares on a CPU device; on a GPU, where its clock was read."""
    if not on_gpu:
        wall_s = rest.wall_s.sum()
        return {
            "exposed_wait_share": _number(rest.data_wait_s.sum() / wall_s),
            "exposed_transfer_share": _number(rest.transfer_s.sum() / wall_s),
        }
    read = rest.where(rest.device_steps > 0)
    if not len(read):
        return {}
    wall_s = read.wall_s.sum()
    wait = np.minimum(read.data_wait_s, read.gpu_gap_s)
    # Copies are issued before the step's first mark, so they lie in the gap, after the wait.
    copies = np.minimum(read.transfer_s, np.maximum(read.gpu_gap_s - wait, 0.0))
    gap_s, gpu_s = read.gpu_gap_s.sum(), read.gpu_s.sum()
    return {
        "exposed_wait_share": _number(wait.sum() / wall_s),
        "exposed_transfer_share": _number(copies.sum() / wall_s),
        "gpu_gap_share": _number(gap_s / (gap_s + gpu_s)) if gap_s + gpu_s > 0 else None,
        "gpu_busy_share": _number(gpu_s / (gap_s + gpu_s)) if gap_s + gpu_s > 0 else None,
        "queue_empty_share": _number(read.queue_empty.sum() / read.device_steps.sum()),
    }


def _fetching(rest: Steps, fetch: Fetch | None, batches_per_step: float | None) -> dict[str, float | None]:
    cpu_s = _number(rest.cpu_s.sum() / rest.count.sum())
    if fetch is None or not fetch.batches:
        return {"consumer_cpu_s": cpu_s}
    own = fetch.cpu_s / fetch.batches * (batches_per_step or 0.0) if fetch.workers == 0 else 0.0
    return {
        "fetch_wall_s": fetch.wall_s / fetch.batches,
        "fetch_cpu_s": fetch.cpu_s / fetch.batches,
        "collate_s": fetch.collate_s / fetch.batches,
        "batch_bytes": _number(fetch.batch_bytes),
        "consumer_cpu_s": max(cpu_s - own, 0.0) if cpu_s is not None else None,
    }


def _machine(recording: Recording, begin_s: float) -> dict[str, float | None]:
    """Means of readings taken after warm-up; the peak over the whole run."""

    def mean(name: str) -> float | None:
        one = recording.one_series(name)
        values = one.values[one.times_s >= begin_s] if one is not None else np.empty(0)
        return _number(np.nanmean(values)) if len(values) and not np.isnan(values).all() else None

    peak = _number(recording.peak_bytes)
    total = next((d.memory_bytes for d in recording.setup.devices if f"cuda:{d.index}" == recording.setup.device), None)
    return {
        "gpu_util_pct": mean("gpu_util_pct"),
        "tensor_active_pct": mean("tensor_active_pct"),
        "cpu_util_pct": mean("cpu_util_pct"),
        "peak_bytes": peak,
        "memory_total_bytes": float(total) if total else None,
        "peak_share": peak / total if peak is not None and total and recording.setup.on_gpu else None,
    }
