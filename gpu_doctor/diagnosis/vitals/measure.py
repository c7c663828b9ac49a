"""Computes the vitals of a recording. A vital that was not measured is None, never zero.

Shares are parts of the wall-clock after warm-up. They are ratios of sums, not medians: n workers deliver in bursts, so
the median wait is 0 while the mean is large. Each share uses one clock only. The phases use the host's, also if the
host ran ahead of its device and a step lasted as long as the device took for it (see `pace`): they are then shares of
`host_step_s`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_doctor.diagnosis.vitals.arithmetic import arithmetic, paced_arithmetic
from gpu_doctor.diagnosis.vitals.compiling import compiling
from gpu_doctor.diagnosis.vitals.device import device, without_round_trips
from gpu_doctor.diagnosis.vitals.distributed import world
from gpu_doctor.diagnosis.vitals.evaluation import evaluation
from gpu_doctor.diagnosis.vitals.fetching import fetching, merged_fetch, step_fetches
from gpu_doctor.diagnosis.vitals.fields import Vitals as Vitals
from gpu_doctor.diagnosis.vitals.hardware import hardware
from gpu_doctor.diagnosis.vitals.lines import fitted
from gpu_doctor.diagnosis.vitals.machine import machine
from gpu_doctor.diagnosis.vitals.memory import memory
from gpu_doctor.diagnosis.vitals.pace import paced_s, paced_steps
from gpu_doctor.recording import PHASES, Column, Recording, Setup, Steps
from gpu_doctor.recording.steps import TRAINING, ratio

WARMUP_FACTOR = 2.0
"""Factor on the median of the later steps above which a leading step is warm-up (worker start, autotune)."""
WARMUP_SHARE = 0.2
"""Largest part of the rows that may be warm-up."""
WARMUP_MOST = 50
"""Most rows that may be warm-up."""
LONELY = 2.0
"""Time outside all phases was a single event if one step's excess is more than this many times the next largest."""
FEWEST_STEPS = 5
"""Fewest steps from which warm-up can be recognised, and fewest passes for a verdict."""


def warmup_rows(steps: Steps, workers: int = 0) -> int:
    """Counts the leading rows that are warm-up.

    Warm-up is the first step (iterator creation, first launches) and one more step for each worker (their first batches
    arrive together). It goes on while a step takes more than twice the median of the second half. It is at most a fifth
    of the rows and at most 50.

    Args:
        steps: the rows judged, all of one kind.
        workers: num_workers of the training loader.
    """
    if (n := len(steps)) < FEWEST_STEPS:
        return _first_of_few(steps)
    most = _most(n)
    usual, later = _trained_s(steps.rows(0, most + 1)), _trained_s(steps.rows(n // 2))
    steady = float(np.median(later))
    rows = min(1 + workers, most)
    while rows < most and usual[rows] > WARMUP_FACTOR * steady:
        rows += 1
    return rows


def _first_of_few(steps: Steps) -> int:
    """Counts the warm-up rows of a run with fewer than 5 steps: 0 or 1.

    It is 1 only if the steps call closures several times, as with LBFGS, and the first took more than twice the median.
    Other runs with so few steps get no verdict.
    """
    own_s = _trained_s(steps)
    calls = ratio(steps.closures, steps.count) or 0.0
    return int(len(own_s) > 1 and calls > 1.0 and own_s[0] > WARMUP_FACTOR * float(np.median(own_s[1:])))


def warmup_so_far(steps: Steps, workers: int = 0, planned: int | None = None) -> tuple[int, bool]:
    """Counts the leading rows that are warm-up while a run goes on; `warmup_rows` does so after its end.

    The time of later steps is not known yet; the fastest step so far stands for it.

    Args:
        steps: the rows so far, all of one kind, at least one.
        workers: num_workers of the training loader.
        planned: most rows that the run will have; None = unknown.

    Returns:
        The number of rows, and True if later steps cannot change it.
    """
    most, own_s = WARMUP_MOST if planned is None else _most(planned), _trained_s(steps)
    slow = np.flatnonzero(own_s[:most] > WARMUP_FACTOR * own_s.min())
    least = min(1 + workers, most, len(steps))
    return max(least, int(slow[-1]) + 1 if len(slow) else 0), len(steps) >= most


def _most(rows: int) -> int:
    """Returns how many rows may be warm-up at most, of a run with `rows` rows."""
    return max(1, min(int(rows * WARMUP_SHARE), WARMUP_MOST))


def _trained_s(steps: Steps) -> Column:
    """Returns the mean seconds of a step in each row, without evaluation passes."""
    return (steps.wall_s - np.nan_to_num(steps.evaluation_s)) / steps.count


def measure(recording: Recording) -> Vitals:
    """Computes the vitals of a recording.

    Args:
        recording: recording of a run or a trial, which may still be going on.

    Returns:
        The vitals; a field that was not measured is None.

    Raises:
        TypeError: if `recording` is anything else, such as the path of one.

    Example:
        >>> import gpu_doctor
        >>> recording = gpu_doctor.load("notebooks/recordings/images-on-a-cpu.npz")
        >>> vitals = gpu_doctor.measure(recording)
        >>> round(vitals.data_wait_share, 2), vitals.gpu_busy_share is None
        (0.86, True)
    """
    if not isinstance(recording, Recording):
        raise TypeError(f"measure() takes a recording, such as gpu_doctor.load(path) gives, not {recording!r:.60}.")
    steps = _judged(recording.steps)
    loader = recording.setup.training_loader
    fetch = next((each for each in recording.fetches if loader is not None and each.loader == loader.key), None)
    warm = warmup_rows(steps, loader.num_workers if loader is not None else 0)
    rest = steps.rows(warm)
    found: dict[str, Any] = machine(recording, rest) | {
        "steps": int(steps.count.sum()),
        "warmup_steps": int(steps.count[:warm].sum()),
        "measured_steps": int(rest.count.sum()),
        "warmup_s": float(steps.wall_s[:warm].sum()) if warm else None,
        "samples": _total(steps.samples),
        "usable_cores": _own_cores(recording.setup),
        "overhead_share": recording.overhead_share,
        "on_gpu": recording.setup.on_gpu,
        "loader": loader,
        "workers": fetch.workers if fetch is not None else loader.num_workers if loader is not None else None,
        "final_loss": _number(recording.losses.value[-1]) if len(recording.losses.value) else None,
        "setup": recording.setup,
        "settings": recording.settings,
        "lines": recording.lines,
        "looks": recording.looks,
        "around": recording.around,
        "source": recording.source,
        "outcome": recording.outcome,
        "reason": recording.reason,
        "chores": recording.chores,
        "traffic": recording.traffic,
        "run_s": float(steps.wall_s.sum()) if len(steps) else None,
        **_around(recording),
    }
    begin_s = float(rest.start_s[0]) if len(rest) else 0.0
    for part in (memory, hardware, world, arithmetic, evaluation):
        found |= part(recording, steps, begin_s)
    if len(rest) and rest.wall_s.sum() > 0:
        found |= _shares(rest) | _per_step(rest, steps.rows(0, warm)) | _speed(recording, rest)
        found |= device(rest, recording.setup.on_gpu)
        found |= without_round_trips(found, recording.traffic)
        found |= compiling(recording.setup, rest) | paced_arithmetic(found)
        found["lines"] = fitted(recording.lines, recording.looks, found)
        batches = found["batches_per_step"]
        found["loaders_pulled"] = float(len(step_fetches(recording, fetch, batches))) if fetch is not None else None
        fetch, found["loaders_at_once"] = merged_fetch(recording, fetch, batches)
        found |= fetching(rest, fetch, batches, recording.setup)
    return Vitals(**found)


def _around(recording: Recording) -> dict[str, float]:
    """Returns the shares of the run's duration before its first step and after its last one."""
    steps, whole_s = recording.steps, recording.duration_s
    if not len(steps) or whole_s <= 0:
        return {}
    before_s, end_s = float(steps.start_s[0]), float(steps.start_s[-1] + steps.wall_s[-1])
    shares = {"before_share": before_s / whole_s, "after_share": (whole_s - end_s) / whole_s}
    return {name: min(max(share, 0.0), 1.0) for name, share in shares.items() if share == share}


def _judged(steps: Steps) -> Steps:
    """Selects the timed rows to judge: training steps, or, without any, the batches of a loop without optimizer."""
    timed = np.isfinite(steps.wall_s)
    training = steps.kind == TRAINING
    wanted = timed & training if training.any() else timed
    return steps if wanted.all() else steps.where(wanted)


def _own_cores(setup: Setup) -> float:
    """Returns the cores that this process can use; ranks on one machine share its cores equally."""
    ranks = setup.world.local_size if setup.world is not None else 1
    if ranks < 2 or (setup.os_cores and setup.usable_cores <= setup.os_cores / ranks):  # the rank is bound to its part
        return setup.usable_cores
    return max(setup.usable_cores / ranks, 1.0)


def _number(value: Any) -> float | None:
    """Returns a float, or None for NaN."""
    return None if np.isnan(value) else float(value)


def _total(column: Column) -> float | None:
    """Sums the rows that were measured; None if none was."""
    total = column.sum()
    if np.isnan(total):
        known = ~np.isnan(column)
        return float(column[known].sum()) if known.any() else None
    return float(total) if len(column) else None


def _shares(rest: Steps) -> dict[str, float | None]:
    """Computes the share of each phase in the wall-clock of the rows in which it was measured; `other` is the rest."""
    shares = {phase: ratio(getattr(rest, f"{phase}_s"), rest.wall_s) for phase in PHASES}
    ours = ratio(rest.ours_s, rest.wall_s)
    total = sum(share or 0.0 for share in (*shares.values(), ours))
    whole = max(total, 1.0)  # a damaged recording must not show 2586 %
    found = {f"{phase}_share": None if share is None else share / whole for phase, share in shares.items()}
    # The step that starts new workers also waits for the old ones to end: its whole wait belongs to the epoch's start.
    at_edge = (rest.edge_s > 0) & (rest.count == 1) & (rest.batches <= 1)
    return found | {
        "ours_share": None if ours is None else ours / whole,
        "other_share": max(1.0 - total, 0.0),
        "other_once_share": min(_once_s(rest) / max(float(rest.wall_s.sum()), 1e-12), max(1.0 - total, 0.0)),
        "loss_share": ratio(rest.loss_s, rest.wall_s),
        "no_grad_share": ratio(rest.no_grad_s, rest.wall_s),
        "edge_share": ratio(np.where(at_edge, rest.data_wait_s, rest.edge_s), rest.wall_s),
    }


def _once_s(rest: Steps) -> float:
    """Returns the seconds of a single event outside all phases: the excess of one step over the median; else 0.

    It is 0 if another step had half as much excess, or if an epoch begins in that step: what the loop does between
    epochs comes again.
    """
    single = rest.where((rest.count == 1) & np.isfinite(rest.other_s))
    if len(single) < FEWEST_STEPS:
        return 0.0
    other = single.other_s
    second, largest = np.partition(other, -2)[-2:] - np.median(other)
    at = int(np.argmax(other))
    begins_epoch = at > 0 and single.epoch[at] > single.epoch[at - 1]
    return float(largest) if largest > LONELY * max(second, 0.0) and not begins_epoch else 0.0


def _speed(recording: Recording, rest: Steps) -> dict[str, float | None]:
    """Computes the speed after warm-up: by the host's clock, or, if it ran ahead, by the clock that `pace` picks."""
    rows = paced_steps(recording, rest)
    took_s = paced_s(recording, rows)
    wall_s, count = float(took_s.sum()), float(rows.count.sum())
    host_s = float(rest.wall_s.sum()) / float(rest.count.sum())
    return {
        "samples_per_s": ratio(rows.samples, took_s),
        "steps_per_s": count / wall_s,
        "step_wall_s": wall_s / count,
        "host_ahead": wall_s / count / host_s if took_s is not rows.wall_s else 1.0,
    }


def _epochs(rest: Steps, before: Steps) -> int | None:
    """Counts the epochs that the rows touch; None if the epochs of steps were not recorded.

    A row carries the number of its last epoch. A step that ran through several (a closure that goes over all data) also
    touches those since the row before it.
    """
    epochs = rest.epoch[np.isfinite(rest.epoch)]
    if not len(epochs):
        return None
    first = float(epochs[0])
    if rest.count[0] == 1 and not (len(before) and before.count[-1] > 1):
        first = min(first, float(before.epoch[-1]) + 1.0 if len(before) else 0.0)
    return int(epochs.max()) - int(min(first, epochs.min())) + 1


def _per_step(rest: Steps, before: Steps) -> dict[str, float | None]:
    """Computes epochs and the figures per step after warm-up; `before` holds the rows of the warm-up."""
    return {
        "epochs": _epochs(rest, before),
        "samples_per_step": ratio(rest.samples, rest.count),
        "batches_per_step": ratio(rest.batches, rest.count),
        "consumer_s": ratio(rest.wall_s - rest.data_wait_s, rest.count),
        "syncs_per_step": ratio(rest.syncs, rest.count),
        "closures_per_step": ratio(rest.closures, rest.count),
        "transfers_per_step": ratio(rest.transfers, rest.count),
        "transfer_bytes_per_step": ratio(rest.transfer_bytes, rest.count),
        "pageable_share": ratio(rest.pageable, rest.transfers),
    }
