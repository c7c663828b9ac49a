"""The rows of a run: one per step, a numpy column per quantity, NaN = not measured; and the phases of a step."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "BACKWARD",
    "DATA_WAIT",
    "EVALUATION",
    "FORWARD",
    "INFERENCE",
    "LOSS",
    "NO_GRAD",
    "OPTIMIZER",
    "OTHER",
    "OURS",
    "PHASES",
    "PHASE_COUNT",
    "PHASE_NAMES",
    "STEP_COLUMNS",
    "SYNC",
    "TRAINING",
    "TRANSFER",
    "Column",
    "Steps",
    "ratio",
    "samples_before",
]

Column: TypeAlias = npt.NDArray[np.float64]

PHASES: Final = ("data_wait", "transfer", "forward", "backward", "optimizer", "sync", "evaluation")
"""The measured phases of a step, in the order in which every plot, bar and table shows them. `other` is derived."""

DATA_WAIT, TRANSFER, FORWARD, BACKWARD, OPTIMIZER, SYNC, EVALUATION, LOSS, NO_GRAD, OTHER, OURS = range(11)
"""The first seven stand in the order of `PHASES`. LOSS is the part of `other` between forward and backward,
NO_GRAD that of `forward` in which a model in training mode records no gradients. OURS is what gpu_doctor itself
takes of the training thread: no phase of the loop."""

PHASE_NAMES: Final = (*PHASES, "other", "forward", "other", "ours")
"""Code -> the phase's public name."""
PHASE_COUNT: Final = len(PHASE_NAMES)

TRAINING: Final = 0.0
INFERENCE: Final = 1.0


@dataclass(frozen=True)
class Steps:
    """One row per step (or, in very long runs, per `count` steps: sums are exact), NaN = not measured.

    Every array has the same length. All `_s` columns are seconds on the host clock, summed over the row's steps,
    except `gpu_*_s` and `exposed_*_s`, which are seconds on the device clock (CUDA events).
    """

    start_s: Column
    """Host time at which the row begins, seconds after the run began."""
    wall_s: Column
    """Host seconds from the row's begin to its end; rows of one loop touch, so these sum to the loop's wall-clock."""
    count: Column
    """How many steps the row stands for (1 until a long run is thinned)."""
    kind: Column
    """0 = a training step (an optimizer stepped), 1 = a batch of a loop without optimizer."""
    samples: Column
    """Training samples in the row; NaN where no batch dimension could be read."""
    batches: Column
    """Batches pulled from training loaders (several with gradient accumulation, 0 without a loader)."""
    data_wait_s: Column
    transfer_s: Column
    forward_s: Column
    backward_s: Column
    optimizer_s: Column
    sync_s: Column
    """Seconds in which the host waited for the device; NaN where no device can be waited for."""
    evaluation_s: Column
    ours_s: Column
    """Seconds that gpu_doctor took of the training thread, at least, in no phase and not in `other`: for events (each
    half of an empty tap, timed in this run), turning them into steps, finding models, marking the device. What taps do
    more than an empty one, and what our code evicts from the caches, are not in it."""
    loss_s: Column
    """Part of `other`: between the end of the last forward and the begin of backward (functional losses, metrics)."""
    no_grad_s: Column
    """Part of `forward_s`: forwards in training mode that recorded no gradients, such as a second one for a metric."""
    edge_s: Column
    """Part of `data_wait_s`: the iterator (end and start of workers) and first batch, at an epoch's edge."""
    cpu_s: Column
    """CPU seconds of the training process (all its threads, no workers), NaN if not measured.

    The clock is read once a millisecond: of steps that are shorter, one has the CPU seconds of its neighbours too.
    """
    transfers: Column
    """Copies between devices."""
    transfer_bytes: Column
    pageable: Column
    """Of `transfers`, the host-to-device copies that were seen to start from pageable (not pinned) memory."""
    syncs: Column
    """Waits of the host for the device; NaN where no device can be waited for, as `sync_s`."""
    closures: Column
    """Times that the optimizer called its closure, a forward and a backward each: LBFGS does up to 20 times a step."""
    gpu_s: Column
    """Device seconds in no gap: those in which it was busy, at most. NaN without a device clock."""
    gpu_gap_s: Column
    """Device seconds in which it had nothing to do but copy: the two below, and those in which the host computed or did
    something else between the phases. Evaluations, and what gpu_doctor itself took, are in neither column."""
    exposed_wait_s: Column
    """Of `gpu_gap_s`, while the host waited for a batch: nothing else is launched meanwhile. At most so much where the
    loader itself launches work."""
    exposed_transfer_s: Column
    """Of `gpu_gap_s`, while the device copied to or from the host and the compute stream could not go on."""
    gpu_forward_s: Column
    """Of `gpu_s`, device seconds of the step's forwards, copies left out,"""
    gpu_backward_s: Column
    """of its backwards"""
    gpu_optimizer_s: Column
    """and of its optimizers' steps. The device's own waits for launches inside of them are part of it."""
    gpu_caught_up_s: Column
    """Of `gpu_s`, device seconds of forwards, losses, backwards and optimizers at whose end the device had caught up
    with its host: how much of them it idled is not known."""
    gpu_since_s: Column
    """Device seconds from the end of the last step that was read before to the end of this one: gaps, evaluations and
    steps that were not marked included, so that these add up to the device's time for the loop."""
    gpu_since_steps: Column
    """How many steps these are: 1 where the step before was read as well."""
    device_steps: Column
    """For how many of the row's steps the device columns were read (the steps they sum over): those that were marked,
    see `capture/gpu/windows.py`."""
    epoch: Column
    """Index of the training epoch (times a training loader was restarted)."""

    def __len__(self) -> int:
        return len(self.wall_s)

    @property
    def end_s(self) -> float:
        """Host time at which the last row ends, seconds after the run began; 0 where there is none."""
        return float(self.start_s[-1] + self.wall_s[-1]) if len(self) else 0.0

    @property
    def other_s(self) -> Column:
        """Host seconds in no measured phase and not our own; the only derived part, so that 100 % is accounted for."""
        measured = np.nan_to_num(self.ours_s)
        for phase in PHASES:
            measured = measured + np.nan_to_num(getattr(self, f"{phase}_s"))
        return np.maximum(self.wall_s - measured, 0.0)

    @property
    def training_s(self) -> Column:
        """Host seconds of each row without its evaluations."""
        return self.wall_s - np.nan_to_num(self.evaluation_s)

    @property
    def batches_or_steps(self) -> Column:
        """Batches of each row; its steps where no batch was counted."""
        return np.where(self.batches > 0, self.batches, self.count)

    def per_batch(self, seconds: Column) -> Column:
        """Seconds of one batch out of those of each row; of one step where no batch was counted."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return seconds / self.batches_or_steps

    def rows(self, start: int = 0, stop: int | None = None) -> Steps:
        """The rows `start:stop` as a view (no copy)."""
        return Steps(*(getattr(self, name)[start:stop] for name in STEP_COLUMNS))

    def where(self, mask: npt.NDArray[np.bool_]) -> Steps:
        """The rows for which `mask` (shape (len,)) is true."""
        return Steps(*(getattr(self, name)[mask] for name in STEP_COLUMNS))

    @classmethod
    def of_table(cls, table: npt.NDArray[np.float64]) -> Steps:
        """Steps over a table of shape (rows, len(STEP_COLUMNS)), columns in the order of STEP_COLUMNS."""
        return cls(*(np.ascontiguousarray(table[:, i]) for i in range(len(STEP_COLUMNS))))

    @classmethod
    def of(cls, **columns: npt.ArrayLike) -> Steps:
        """Steps from some columns; the missing ones are filled honestly (count 1, kind training, the rest NaN).

        Raises:
            ValueError: if no column is given or the columns differ in length.
        """
        given = {name: np.asarray(values, dtype=np.float64) for name, values in columns.items()}
        lengths = {len(values) for values in given.values()}
        if len(lengths) != 1:
            raise ValueError("Steps.of needs at least one column, and all columns of the same length.")
        n = lengths.pop()
        filled: dict[str, Column] = {name: np.full(n, np.nan) for name in STEP_COLUMNS}
        filled["count"] = np.ones(n)
        filled["kind"] = np.zeros(n)
        filled["epoch"] = np.zeros(n)
        filled["device_steps"] = np.zeros(n)
        if "wall_s" in given:
            filled["start_s"] = np.concatenate([[0.0], np.cumsum(given["wall_s"])[:-1]]) if n else np.empty(0)
        filled.update(given)
        return cls(**filled)


STEP_COLUMNS: Final = tuple(f.name for f in dataclasses.fields(Steps))


def ratio(top: Column, bottom: Column) -> float | None:
    """Sum over sum, both over the rows in which both were measured: a gap in one row costs that row alone."""
    above, below = top.sum(), bottom.sum()
    if np.isnan(above) or np.isnan(below):
        seen = ~(np.isnan(top) | np.isnan(bottom))
        above, below = top[seen].sum(), bottom[seen].sum()
    return float(above / below) if below > 0 else None


def samples_before(steps: Steps, at: Column) -> Column:
    """Samples trained before each of the steps `at` (interpolated inside rows that stand for several steps)."""
    if not len(steps):
        return np.full(len(at), np.nan)
    before: Column = np.interp(
        at,
        np.concatenate([[0.0], np.cumsum(steps.count)]),
        np.concatenate([[0.0], np.cumsum(steps.samples)]),
    )
    return before
