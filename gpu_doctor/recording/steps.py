"""The steps of a run as numpy columns, one row per step and NaN = not measured; and the phases of a step."""

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
"""The measured phases of a step, in the order in which every plot, bar and table shows them; `other` is derived."""

DATA_WAIT, TRANSFER, FORWARD, BACKWARD, OPTIMIZER, SYNC, EVALUATION, LOSS, NO_GRAD, OTHER, OURS = range(11)
"""Codes of the phases. The first seven are in the order of `PHASES`. LOSS is the part of `other` between forward and
backward, NO_GRAD the part of `forward` in which a model in training mode records no gradients. OURS is the time that
gpu_doctor itself takes of the training thread, which is no phase of the loop."""

PHASE_NAMES: Final = (*PHASES, "other", "forward", "other", "ours")
"""Public name of the phase with each code."""
PHASE_COUNT: Final = len(PHASE_NAMES)

TRAINING: Final = 0.0
INFERENCE: Final = 1.0


@dataclass(frozen=True)
class Steps:
    """The steps of a run, one row each, or in very long runs one row for `count` steps, with exact sums.

    All columns have the same length, and NaN = not measured. All `_s` columns are seconds on the host clock, summed
    over the row's steps, except `gpu_*_s` and `exposed_*_s`, which are seconds on the device clock (CUDA events).
    """

    start_s: Column
    """Host time at which the row begins, in seconds after the run began."""
    wall_s: Column
    """Host time from the row's start to its end. The rows of a loop are contiguous, so they sum to its wall-clock."""
    count: Column
    """Number of steps in the row (1 until a long run is thinned)."""
    kind: Column
    """0 = a training step (an optimizer stepped), 1 = a batch of a loop without optimizer."""
    samples: Column
    """Number of training samples in the row; NaN if no batch dimension could be read."""
    batches: Column
    """Number of batches from training loaders (several with gradient accumulation, 0 without a loader)."""
    data_wait_s: Column
    transfer_s: Column
    forward_s: Column
    backward_s: Column
    optimizer_s: Column
    sync_s: Column
    """Time in which the host waited for the device; NaN if there is no device to wait for."""
    evaluation_s: Column
    ours_s: Column
    """Least time that gpu_doctor took of the training thread, which is in no phase and not in `other`: recording events
    (each at half the cost of an empty tap, timed in this run), turning them into steps, finding models, marking the
    device. Not included: work of taps beyond an empty one, and the cost of caches that our code evicts."""
    loss_s: Column
    """Part of `other` between the end of the last forward and the start of backward (functional losses, metrics)."""
    no_grad_s: Column
    """Part of `forward_s` in forwards in training mode that record no gradients, such as a second one for a metric."""
    edge_s: Column
    """Part of `data_wait_s` at the start of an epoch: stopping and starting workers, and the first batch."""
    cpu_s: Column
    """CPU time of the training process (all its threads, no workers).

    The clock is read once a millisecond: among shorter steps, one gets the CPU time of its neighbours too.
    """
    transfers: Column
    """Number of copies between devices."""
    transfer_bytes: Column
    pageable: Column
    """Number of host-to-device copies among `transfers` that were seen to start from pageable (not pinned) memory."""
    syncs: Column
    """Number of the host's waits for the device; NaN if there is no device to wait for."""
    closures: Column
    """Number of times that the optimizer called its closure, with a forward and a backward each: LBFGS does so up to 20
    times a step."""
    gpu_s: Column
    """Device time outside all gaps, which is an upper bound of its busy time; NaN without a device clock."""
    gpu_gap_s: Column
    """Device time with nothing to do but copies: the two columns below, and the time in which the host computed or did
    something else between the phases. Evaluations, and time that gpu_doctor took, are in neither `gpu_s` nor this."""
    exposed_wait_s: Column
    """Part of `gpu_gap_s` while the host waited for a batch and launched nothing else; an upper bound if the loader
    itself launches work."""
    exposed_transfer_s: Column
    """Part of `gpu_gap_s` while the device copied to or from the host and the compute stream could not go on."""
    gpu_forward_s: Column
    """Part of `gpu_s` in the forwards, without copies. The device's waits for launches inside are included."""
    gpu_backward_s: Column
    """Part of `gpu_s` in the backwards. The device's waits for launches inside are included."""
    gpu_optimizer_s: Column
    """Part of `gpu_s` in the optimizers' steps. The device's waits for launches inside are included."""
    gpu_caught_up_s: Column
    """Part of `gpu_s` in forwards, losses, backwards and optimizers at whose end the device had caught up with its
    host: how much of this time it was idle is not known."""
    gpu_since_s: Column
    """Device time from the end of the last step read before to the end of this one. It includes gaps, evaluations and
    steps that were not marked, so these times add up to the device's time for the loop."""
    gpu_since_steps: Column
    """Number of steps in `gpu_since_s`: 1 if the step before was read as well."""
    device_steps: Column
    """Number of the row's steps that the device columns sum over: those that were marked, see
    `capture/gpu/windows.py`."""
    epoch: Column
    """Index of the training epoch (number of times that a training loader was restarted)."""

    def __len__(self) -> int:
        return len(self.wall_s)

    @property
    def end_s(self) -> float:
        """Host time at which the last row ends, in seconds after the run began; 0 if there are no rows."""
        return float(self.start_s[-1] + self.wall_s[-1]) if len(self) else 0.0

    @property
    def other_s(self) -> Column:
        """Host time in no measured phase and not our own; it is derived, so that the parts add up to 100 %."""
        measured = np.nan_to_num(self.ours_s)
        for phase in PHASES:
            measured = measured + np.nan_to_num(getattr(self, f"{phase}_s"))
        return np.maximum(self.wall_s - measured, 0.0)

    @property
    def training_s(self) -> Column:
        """Host time of each row without its evaluations."""
        return self.wall_s - np.nan_to_num(self.evaluation_s)

    @property
    def batches_or_steps(self) -> Column:
        """Number of batches in each row; the number of steps if no batch was counted."""
        return np.where(self.batches > 0, self.batches, self.count)

    def per_batch(self, seconds: Column) -> Column:
        """Divides each row's seconds by its number of batches, or by its number of steps if no batch was counted."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return seconds / self.batches_or_steps

    def rows(self, start: int = 0, stop: int | None = None) -> Steps:
        """Returns the rows `start:stop` as a view (no copy)."""
        return Steps(*(getattr(self, name)[start:stop] for name in STEP_COLUMNS))

    def where(self, mask: npt.NDArray[np.bool_]) -> Steps:
        """Returns the rows for which `mask`, of shape (len,), is True."""
        return Steps(*(getattr(self, name)[mask] for name in STEP_COLUMNS))

    @classmethod
    def of_table(cls, table: npt.NDArray[np.float64]) -> Steps:
        """Makes steps from a table of shape (rows, len(STEP_COLUMNS)), with columns in the order of STEP_COLUMNS."""
        return cls(*(np.ascontiguousarray(table[:, i]) for i in range(len(STEP_COLUMNS))))

    @classmethod
    def of(cls, **columns: npt.ArrayLike) -> Steps:
        """Makes steps from some columns; missing ones are filled (count 1, kind training, NaN for unmeasured values).

        Raises:
            ValueError: If no column is given or the columns differ in length.
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
    """Returns the sum of `top` divided by the sum of `bottom`, over the rows in which both were measured.

    None if the sum of `bottom` is not positive.
    """
    above, below = top.sum(), bottom.sum()
    if np.isnan(above) or np.isnan(below):
        seen = ~(np.isnan(top) | np.isnan(bottom))
        above, below = top[seen].sum(), bottom[seen].sum()
    return float(above / below) if below > 0 else None


def samples_before(steps: Steps, at: Column) -> Column:
    """Returns the number of samples trained before each of the steps `at`, interpolated in rows of several steps."""
    if not len(steps):
        return np.full(len(at), np.nan)
    before: Column = np.interp(
        at,
        np.concatenate([[0.0], np.cumsum(steps.count)]),
        np.concatenate([[0.0], np.cumsum(steps.samples)]),
    )
    return before
