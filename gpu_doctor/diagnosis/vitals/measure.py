"""The numbers read off a recording: some dozens, each maybe None. None means not measured and is never zero.

Shares are of the wall-clock after warm-up, made of sums (n workers deliver in bursts: the median wait is 0 while the
mean is large), and each of one clock only: those of the phases are of the host's, also where the host ran ahead of its
device and a step lasted as long as the device took for it (`pace`). Their seconds are then shares of `host_step_s`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_doctor.diagnosis.vitals.arithmetic import arithmetic, paced_arithmetic
from gpu_doctor.diagnosis.vitals.compiling import compiling
from gpu_doctor.diagnosis.vitals.device import device, tripped
from gpu_doctor.diagnosis.vitals.distributed import world
from gpu_doctor.diagnosis.vitals.evaluation import evaluation
from gpu_doctor.diagnosis.vitals.fetching import fetching, pulled, side_by_side
from gpu_doctor.diagnosis.vitals.fields import Vitals as Vitals
from gpu_doctor.diagnosis.vitals.hardware import hardware
from gpu_doctor.diagnosis.vitals.lines import fitted
from gpu_doctor.diagnosis.vitals.machine import machine
from gpu_doctor.diagnosis.vitals.memory import memory
from gpu_doctor.diagnosis.vitals.pace import paced_s, paced_steps
from gpu_doctor.recording import PHASES, Column, Recording, Setup, Steps
from gpu_doctor.recording.steps import TRAINING, ratio

WARMUP_FACTOR = 2.0
"""A leading step is warm-up while it takes more than so many times the median of the rest (worker start, autotune)."""
WARMUP_SHARE = 0.2
WARMUP_MOST = 50
LONELY = 2.0
"""What one step took outside of all phases was a single event where no other step had half as much beyond the usual."""
FEWEST_STEPS = 5
"""Below so many steps there is no warm-up to tell apart, and below so many passes no verdict."""


def warmup_rows(steps: Steps, workers: int = 0) -> int:
    """Counts the leading rows that are warm-up.

    At least the first step (iterator creation, first launches), with workers also as many as there are workers (their
    first batches arrive together), then on while a step takes more than twice the median of the second half; at most
    a fifth of the rows and at most 50.

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
    """1 if the first of a few long steps that call closures was warm-up; of other few steps there is no verdict."""
    own_s = _trained_s(steps)
    calls = ratio(steps.closures, steps.count) or 0.0
    return int(len(own_s) > 1 and calls > 1.0 and own_s[0] > WARMUP_FACTOR * float(np.median(own_s[1:])))


def warmup_so_far(steps: Steps, workers: int = 0, planned: int | None = None) -> tuple[int, bool]:
    """How many leading rows are warm-up as far as can be told while a run goes on; `warmup_rows` tells it afterwards.

    As there, but what a step takes later is not known yet: the fastest so far stands for it.

    Args:
        steps: the rows so far, all of one kind, at least one.
        workers: num_workers of the training loader.
        planned: rows that there will be at most; None = any number.

    Returns:
        The number, and whether it is final, whatever comes.
    """
    most, own_s = WARMUP_MOST if planned is None else _most(planned), _trained_s(steps)
    slow = np.flatnonzero(own_s[:most] > WARMUP_FACTOR * own_s.min())
    least = min(1 + workers, most, len(steps))
    return max(least, int(slow[-1]) + 1 if len(slow) else 0), len(steps) >= most


def _most(rows: int) -> int:
    """Returns the most rows of a run that may be warm-up."""
    return max(1, min(int(rows * WARMUP_SHARE), WARMUP_MOST))


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
    fetch = next((one for one in recording.fetches if loader is not None and one.loader == loader.key), None)
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
        found |= tripped(found, recording.traffic)
        found |= compiling(recording.setup, rest) | paced_arithmetic(found)
        found["lines"] = fitted(recording.lines, recording.looks, found)
        batches = found["batches_per_step"]
        found["loaders_pulled"] = float(len(pulled(recording, fetch, batches))) if fetch is not None else None
        fetch, found["loaders_at_once"] = side_by_side(recording, fetch, batches)
        found |= fetching(rest, fetch, batches, recording.setup)
    return Vitals(**found)


def _around(recording: Recording) -> dict[str, float]:
    """Shares of the run's duration before its first step and after its last one."""
    steps, whole_s = recording.steps, recording.duration_s
    if not len(steps) or whole_s <= 0:
        return {}
    before_s, end_s = float(steps.start_s[0]), float(steps.start_s[-1] + steps.wall_s[-1])
    shares = {"before_share": before_s / whole_s, "after_share": (whole_s - end_s) / whole_s}
    return {name: min(max(share, 0.0), 1.0) for name, share in shares.items() if share == share}


def _judged(steps: Steps) -> Steps:
    """The training steps; the batches of a loop without optimizer only where there is no training step at all."""
    timed = np.isfinite(steps.wall_s)
    training = steps.kind == TRAINING
    wanted = timed & training if training.any() else timed
    return steps if wanted.all() else steps.where(wanted)


def _own_cores(setup: Setup) -> float:
    """Usable cores that fall to this process: where ranks that do the same share the machine, its part of them."""
    ranks = setup.world.local_size if setup.world is not None else 1
    if ranks < 2 or (setup.os_cores and setup.usable_cores <= setup.os_cores / ranks):  # bound to its part already
        return setup.usable_cores
    return max(setup.usable_cores / ranks, 1.0)


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


def _shares(rest: Steps) -> dict[str, float | None]:
    """Each phase over the wall-clock of the rows in which it was measured; `other` is what is left of 1."""
    shares = {phase: ratio(getattr(rest, f"{phase}_s"), rest.wall_s) for phase in PHASES}
    ours = ratio(rest.ours_s, rest.wall_s)
    total = sum(share or 0.0 for share in (*shares.values(), ours))
    whole = max(total, 1.0)  # a damaged recording must not show 2586 %
    found = {f"{phase}_share": None if share is None else share / whole for phase, share in shares.items()}
    # The loop waits for the old workers' end in the step that starts the new ones: all that this step waits is edge.
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
    """Seconds outside of all phases that one step had beyond the usual one, where no other had half as much; else 0.

    What a step takes in which an epoch begins, the loop does between its epochs, however few there are.
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
    """How fast the steps after warm-up were: by the host's clock, or as `pace` says where it ran ahead of a device."""
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
    """Epochs that the rows touch; a step of many (a closure that goes over the data) has the number of its last one."""
    epochs = rest.epoch[np.isfinite(rest.epoch)]
    if not len(epochs):
        return None
    first = float(epochs[0])
    if rest.count[0] == 1 and not (len(before) and before.count[-1] > 1):
        first = min(first, float(before.epoch[-1]) + 1.0 if len(before) else 0.0)
    return int(epochs.max()) - int(min(first, epochs.min())) + 1


def _per_step(rest: Steps, before: Steps) -> dict[str, float | None]:
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
