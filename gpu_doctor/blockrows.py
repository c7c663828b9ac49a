"""The rows of steps that repeat: which event ends which phase is known, so a block's times give them all at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from gpu_doctor.phases import FORWARD, LOSS, OTHER, PHASE_COUNT
from gpu_doctor.steps import PHASES, STEP_COLUMNS, TRAINING

COLUMN: Final = {name: i for i, name in enumerate(STEP_COLUMNS)}
_PHASE_COLUMNS: Final = [(phase, COLUMN[f"{name}_s"]) for phase, name in enumerate(PHASES) if name != "sync"]
Rows = npt.NDArray[np.float64]


class BlockRows:
    """The formula of one rhythm."""

    def __init__(self, phases: Sequence[int], written: Rows, batches: int, began: int) -> None:
        """Nothing is tried yet, see `holds`.

        Args:
            phases: that each event of a step ends. written: the row of such a step, as the ledger wrote it.
            batches: of a step. began: ns of the host clock at the run's begin.
        """
        self._matrix = np.zeros((len(phases), PHASE_COUNT))
        self._matrix[np.arange(len(phases)), phases] = 1.0
        self._written, self._template, self._batches, self._began = written, written.copy(), batches, began

    def holds(self, times: Sequence[int], samples: Sequence[float]) -> bool:
        """Whether the formula gives, to the last bit, the row that the ledger wrote of the step with these events."""
        written = self._written
        if written[COLUMN["kind"]] != TRAINING or written[COLUMN["edge_s"]] or written[COLUMN["transfers"]]:
            return False
        begin = round(written[COLUMN["start_s"]] * 1e9) + self._began
        row = self.of(1, begin, times, samples)[0][0]
        same: npt.NDArray[np.bool_] = (row == written) | (np.isnan(row) & np.isnan(written))
        same[COLUMN["cpu_s"]] = True
        # The begin was rounded to seconds: what lies a nanosecond apart is the same.
        same[COLUMN["start_s"]] = same[COLUMN["wall_s"]] = abs(row - written)[[0, 1]].max() < 2e-9
        return bool(same.all())

    def in_epoch(self, epoch: int) -> None:
        """The rows to come are of this epoch."""
        self._template[COLUMN["epoch"]] = epoch

    def of(self, steps: int, begin: int, times: Sequence[int], samples: Sequence[float]) -> tuple[Rows, int]:
        """The rows of `steps` steps that begin at `begin` ns, and when the last ended.

        Args:
            steps: how many. begin: ns of the host clock.
            times: of their events and maybe more, ns of the host clock. samples: of their batches and maybe more.
        """
        events = len(self._matrix)
        at = np.empty(1 + steps * events, dtype=np.int64)
        at[0], at[1:] = begin, times[: steps * events]
        spent = np.diff(at).reshape(steps, events).astype(np.float64)
        phases = spent @ self._matrix * 1e-9
        rows = np.repeat(self._template[None], steps, axis=0)
        starts = at[:-1:events] if events else at[:1]
        rows[:, COLUMN["start_s"]] = (starts - self._began) * 1e-9
        rows[:, COLUMN["wall_s"]] = np.diff(at[::events]) * 1e-9
        for phase, column in _PHASE_COLUMNS:
            rows[:, column] = phases[:, phase]
        rows[:, COLUMN["loss_s"]] = phases[:, LOSS]
        rows[:, COLUMN["cpu_s"]] = 0.0
        given = np.asarray(samples[: steps * self._batches])
        rows[:, COLUMN["samples"]] = given.reshape(steps, self._batches).sum(axis=1)
        return rows, int(at[-1])


def no_loss(phases: list[int]) -> None:
    """What the ledger has taken back of the last forward's loss, among the phases noted."""
    for i in range(len(phases) - 1, -1, -1):
        if phases[i] == FORWARD:
            return
        if phases[i] == LOSS:
            phases[i] = OTHER
