"""The numbers read off a recording: some dozens, each maybe None. None means not measured and is never zero.

Shares are of the wall-clock after warm-up, made of sums (n workers deliver in bursts: the median wait is 0 while the
mean is large), and each of one clock only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gpu_doctor.recording import Fetch, LineCost, Recording
from gpu_doctor.steps import PHASES, TRAINING, Column, Steps
from gpu_doctor.vitals_arithmetic import arithmetic
from gpu_doctor.vitals_evaluation import evaluation
from gpu_doctor.vitals_fields import Vitals as Vitals
from gpu_doctor.vitals_hardware import hardware
from gpu_doctor.vitals_memory import memory
from gpu_doctor.vitals_world import world

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
    if (n := len(steps)) < FEWEST_STEPS:
        return 0
    most = max(1, min(int(n * WARMUP_SHARE), WARMUP_MOST))
    usual, later = _trained_s(steps.rows(0, most + 1)), _trained_s(steps.rows(n // 2))
    steady = float(np.median(later))
    rows = min(1 + workers, most)
    while rows < most and usual[rows] > WARMUP_FACTOR * steady:
        rows += 1
    return rows


def _trained_s(steps: Steps) -> Column:
    """Seconds of a step without evaluation passes, for each row."""
    return (steps.wall_s - np.nan_to_num(steps.evaluation_s)) / steps.count


def measure(recording: Recording) -> Vitals:
    """Reads the vitals off a recording.

    Args:
        recording: of a run or a trial, complete or so far.

    Returns:
        Vitals whose shares are of the wall-clock after warm-up; whatever was not measured is None.

    Raises:
        TypeError: if it is anything else, such as the path of a recording.
    """
    if not isinstance(recording, Recording):
        raise TypeError(f"measure() takes a recording, such as gpu_doctor.load(path) gives, not {recording!r:.60}.")
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
        "samples": _total(steps.samples),
        "usable_cores": recording.setup.usable_cores,
        "overhead_share": recording.overhead_share,
        "on_gpu": recording.setup.on_gpu,
        "loader": loader,
        "workers": fetch.workers if fetch is not None else loader.num_workers if loader is not None else None,
        "final_loss": _number(recording.losses.value[-1]) if len(recording.losses.value) else None,
        "setup": recording.setup,
        "settings": recording.settings,
        "lines": recording.lines,
        "looks": recording.looks,
        "source": recording.source,
        "outcome": recording.outcome,
        "reason": recording.reason,
        "chores": recording.chores,
        "traffic": recording.traffic,
        "run_s": float(steps.wall_s.sum()) if len(steps) else None,
    }
    begin_s = float(rest.start_s[0]) if len(rest) else 0.0
    for part in (memory, hardware, world, arithmetic, evaluation):
        found |= part(recording, steps, begin_s)
    if len(rest) and rest.wall_s.sum() > 0:
        found |= _shares(rest) | _per_step(rest) | _device(rest, recording.setup.on_gpu)
        found["lines"] = _within_phases(recording.lines, found)
        fetch, found["loaders_at_once"] = _side_by_side(recording, fetch, found["batches_per_step"])
        found |= _fetching(rest, fetch, found["batches_per_step"])
    return Vitals(**found)


def _judged(steps: Steps) -> Steps:
    """The training steps; the batches of a loop without optimizer only where there is no training step at all."""
    timed = np.isfinite(steps.wall_s)
    training = steps.kind == TRAINING
    wanted = timed & training if training.any() else timed
    return steps if wanted.all() else steps.where(wanted)


def _number(value: Any) -> float | None:
    """A float, or None for NaN."""
    return None if np.isnan(value) else float(value)


def _total(column: Column) -> float | None:
    """Sum of the rows that were measured; None where none was."""
    total = column.sum()
    if np.isnan(total):
        seen = ~np.isnan(column)
        return float(column[seen].sum()) if seen.any() else None
    return float(total) if len(column) else None


def _ratio(top: Column, bottom: Column) -> float | None:
    """Sum over sum, both over the rows in which both were measured: a gap in one row costs that row alone."""
    above, below = top.sum(), bottom.sum()
    if np.isnan(above) or np.isnan(below):
        seen = ~(np.isnan(top) | np.isnan(bottom))
        above, below = top[seen].sum(), bottom[seen].sum()
    return float(above / below) if below > 0 else None


def _shares(rest: Steps) -> dict[str, float | None]:
    """Each phase over the wall-clock of the rows in which it was measured; `other` is what is left of 1."""
    shares = {phase: _ratio(getattr(rest, f"{phase}_s"), rest.wall_s) for phase in PHASES}
    total = sum(share or 0.0 for share in shares.values())
    whole = max(total, 1.0)  # a damaged recording must not show 2586 %
    found = {f"{phase}_share": None if share is None else share / whole for phase, share in shares.items()}
    # The loop waits for the old workers' end in the step that starts the new ones: all that this step waits is edge.
    at_edge = (rest.edge_s > 0) & (rest.count == 1) & (rest.batches <= 1)
    return found | {
        "other_share": max(1.0 - total, 0.0),
        "loss_share": _ratio(rest.loss_s, rest.wall_s),
        "edge_share": _ratio(np.where(at_edge, rest.data_wait_s, rest.edge_s), rest.wall_s),
    }


def _within_phases(lines: tuple[LineCost, ...], shares: dict[str, Any]) -> tuple[LineCost, ...]:
    """Line costs of which no phase has more than the ledger clocked in it.

    Looks are of the whole run, its slow first steps included, and a look that had to wait for the interpreter's lock
    falls into the phase that gave it up; the ledger misses nothing.
    """
    seen = dict.fromkeys((*PHASES, "other"), 0.0)
    for one in lines:
        if not one.in_worker and one.phase in seen:
            seen[one.phase] += one.share
    over = {phase: share for phase, share in seen.items() if share > (shares.get(f"{phase}_share") or 0.0)}
    scales = {phase: (shares.get(f"{phase}_share") or 0.0) / share for phase, share in over.items()}
    if not scales:
        return lines
    fitted = (one if one.in_worker else replace(one, share=one.share * scales.get(one.phase, 1.0)) for one in lines)
    return tuple(sorted(fitted, key=lambda one: -one.share))


def _per_step(rest: Steps) -> dict[str, float | None]:
    wall_s, count = float(rest.wall_s.sum()), float(rest.count.sum())
    epochs = rest.epoch[np.isfinite(rest.epoch)]
    return {
        "samples_per_s": _ratio(rest.samples, rest.wall_s),
        "steps_per_s": count / wall_s,
        "step_wall_s": wall_s / count,
        "epochs": int(epochs.max()) - int(epochs.min()) + 1 if len(epochs) else None,
        "samples_per_step": _ratio(rest.samples, rest.count),
        "batches_per_step": _ratio(rest.batches, rest.count),
        "consumer_s": _ratio(rest.wall_s - rest.data_wait_s, rest.count),
        "syncs_per_step": _ratio(rest.syncs, rest.count),
        "transfers_per_step": _ratio(rest.transfers, rest.count),
        "transfer_bytes_per_step": _ratio(rest.transfer_bytes, rest.count),
        "pageable_share": _ratio(rest.pageable, rest.transfers),
    }


def _device(rest: Steps, on_gpu: bool) -> dict[str, float | None]:
    """What the loop cost the device: host shares on a CPU device; on a GPU, where its clock was read."""
    if not on_gpu:
        return {
            "exposed_wait_share": _ratio(rest.data_wait_s, rest.wall_s),
            "exposed_transfer_share": _ratio(rest.transfer_s, rest.wall_s),
        }
    read = rest.where(rest.device_steps > 0)
    wait = np.minimum(read.data_wait_s, read.gpu_gap_s)
    # Copies are issued before the step's first mark, so they lie in the gap, after the wait.
    copies = np.minimum(read.transfer_s, np.maximum(read.gpu_gap_s - wait, 0.0))
    return {
        "exposed_wait_share": _ratio(wait, read.wall_s),
        "exposed_transfer_share": _ratio(copies, read.wall_s),
        "gpu_gap_share": _ratio(read.gpu_gap_s, read.gpu_gap_s + read.gpu_s),
        "gpu_busy_share": _ratio(read.gpu_s, read.gpu_gap_s + read.gpu_s),
        "queue_empty_share": _ratio(read.queue_empty, read.device_steps),
    }


def _side_by_side(
    recording: Recording, fetch: Fetch | None, batches: float | None
) -> tuple[Fetch | None, float | None]:
    """The fetches of all loaders that a step pulls from in turn as those of one, and how many loaders that are."""
    if fetch is None or not fetch.batches:
        return fetch, None
    roles = {one.key: one.role for one in recording.setup.loaders}
    beside = [
        one
        for one in recording.fetches
        if one.workers == fetch.workers
        and _delivered(one) >= _delivered(fetch) / 2
        and roles.get(one.loader) != "evaluation"
    ]
    if not 1 < len(beside) <= round(batches or 1.0):
        return fetch, 1.0  # one loader, or one after the other
    sums = {name: sum(getattr(one, name) for one in beside) for name in ("batches", "wall_s", "cpu_s", "collate_s")}
    optional = ("queued_s", "read_bytes", "stored_bytes", "stored_s", "delivered", "start_s", "first_s", "end_s")
    for name in optional:
        known = [getattr(one, name) for one in beside]
        sums[name] = None if None in known else sum(known)
    for name in ("batch_bytes", "batch_tensors", "ready_batches", "empty_share"):
        known = [getattr(one, name) for one in beside]
        means = (one * other.batches for one, other in zip(known, beside, strict=True))
        sums[name] = None if None in known else sum(means) / sums["batches"]
    sums["walls_s"] = np.concatenate([one.walls_s for one in beside])
    dearest_s = max(one.wall_s for one in beside)
    return replace(fetch, **sums), sum(one.wall_s for one in beside) / dearest_s if dearest_s > 0 else 1.0


def _delivered(fetch: Fetch) -> int:
    """Batches that the loop got; in an old recording those metered, which of quick loaders is a part."""
    return fetch.batches if fetch.delivered is None else fetch.delivered


def _fetching(rest: Steps, fetch: Fetch | None, batches_per_step: float | None) -> dict[str, float | None]:
    cpu_s = _ratio(rest.cpu_s, rest.count)
    if fetch is None or not fetch.batches:
        return {"consumer_cpu_s": cpu_s}
    own = fetch.cpu_s / fetch.batches * (batches_per_step or 0.0) if fetch.workers == 0 else 0.0
    walls_s = fetch.walls_s[np.isfinite(fetch.walls_s)]
    return {
        "fetch_wall_s": fetch.wall_s / fetch.batches,
        "fetch_cpu_s": fetch.cpu_s / fetch.batches,
        "collate_s": fetch.collate_s / fetch.batches,
        "fetch_queued_s": None if fetch.queued_s is None else fetch.queued_s / fetch.batches,
        "fetch_read_bytes": None if fetch.read_bytes is None else fetch.read_bytes / fetch.batches,
        "fetch_stored_bytes": None if fetch.stored_bytes is None else fetch.stored_bytes / fetch.batches,
        "fetch_stored_share": None if fetch.stored_s is None else min(fetch.stored_s / max(fetch.wall_s, 1e-9), 1.0),
        "batch_bytes": _number(fetch.batch_bytes),
        "batch_tensors": fetch.batch_tensors,
        "ready_batches": fetch.ready_batches,
        "empty_share": fetch.empty_share,
        "worker_start_s": _each(fetch.start_s, fetch.starts),
        "worker_first_s": _each(fetch.first_s, fetch.starts),
        "worker_end_s": _each(fetch.end_s, fetch.ends),
        "consumer_cpu_s": max(cpu_s - own, 0.0) if cpu_s is not None else None,
        "fetch_median_s": float(np.median(walls_s)) if len(walls_s) else None,
        "fetch_p99_s": float(np.percentile(walls_s, 99)) if len(walls_s) else None,
    }


def _each(total: float | None, count: int | None) -> float | None:
    return total / count if total is not None and count else None


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
