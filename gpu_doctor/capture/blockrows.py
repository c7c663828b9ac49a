"""The rows of steps that repeat: which event ends which phase is known, so a block's times give them all at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gpu_doctor.capture.eventnotes import DELIVERED, Noted
from gpu_doctor.capture.stepcounts import Pull
from gpu_doctor.recording import PHASES
from gpu_doctor.recording.steps import FORWARD, LOSS, NO_GRAD, OTHER, PHASE_COUNT, STEP_COLUMNS, TRAINING

COLUMN: Final = {name: i for i, name in enumerate(STEP_COLUMNS)}
Rows = npt.NDArray[np.float64]
PLACES: Final[Rows] = np.zeros((PHASE_COUNT, len(STEP_COLUMNS)))
"""Phase by column: 1 where the phase's time is part of the column's."""
_PARTS: Final = ((LOSS, "loss"), (NO_GRAD, "forward"), (NO_GRAD, "no_grad"))
for _phase, _name in (*enumerate(PHASES), *_PARTS):
    PLACES[_phase, COLUMN[f"{_name}_s"]] = 1.0
PLACES[:, COLUMN["wall_s"]] = 1.0
_MADE: Final = [
    *np.flatnonzero(PLACES.any(axis=0)).tolist(),
    *(COLUMN[name] for name in ("start_s", "cpu_s", "samples", "transfer_bytes")),
]


def foreign(codes: Sequence[Any], pull: Pull) -> bool:
    """Whether the step's asks are not answered one by one, or it ends with the ask of another iterator than `pull`.

    Two loaders in a zip are asked in turns. One that is asked while another fetches is none that can be noted.
    """
    turns = [one for one in codes if not isinstance(one, int) or one == DELIVERED]
    asks = turns[1::2]
    answered = len(turns) == 2 * len(asks) and all(one == DELIVERED for one in turns[::2])
    return not answered or not all(isinstance(one, Pull) for one in asks) or asks[-1:] != [pull]


def counted_batches(codes: Sequence[Any]) -> npt.NDArray[np.bool_]:
    """Which of a step's batches give its samples, as `Evaluations._count` has it; none where that would change."""
    asks = [one for one in codes if not isinstance(one, int)]
    given = [asks[-1], *asks[:-1]]
    per_step = Counter(id(one.loader) for one in given)
    delivered = {id(one.loader): one.loader[0] for one in given}
    lead, counted = given[0], np.zeros(len(given), dtype=bool)
    for at, one in enumerate(given):
        delivered[id(one.loader)] += 1
        if one is not lead and delivered[id(one.loader)] > delivered[id(lead.loader)]:
            lead = one
            counted[:] = False
        counted[at] = one is lead
    if max(per_step.values()) > per_step[id(lead.loader)]:
        counted[:] = False
    return counted


class BlockRows:
    """The formula of one rhythm."""

    def __init__(
        self, phases: Sequence[int], written: Rows, counted: npt.NDArray[np.bool_], copies: int, began: int
    ) -> None:
        """Nothing is tried yet, see `holds`.

        Args:
            phases: that each event of a step ends. written: the row of such a step, as the ledger wrote it.
            counted: of each batch of a step, whether its samples are the step's. copies: to a device in a step.
            began: ns of the host clock at the run's begin.
        """
        self._matrix = np.zeros((len(phases), PHASE_COUNT))
        self._matrix[np.arange(len(phases)), phases] = 1.0
        self._written, self._template, self._batches, self._began = written, written.copy(), len(counted), began
        self._counted, self._all, self._copies = counted, bool(counted.all()), copies
        self._usual_bytes = 0.0
        self._template[_MADE] = 0.0
        if np.isnan(written[COLUMN["sync_s"]]):  # waits are not measured
            self._template[COLUMN["sync_s"]] = np.nan

    def holds(self, noted: Noted) -> bool:
        """Whether the formula gives, to the last bit, the row that the ledger wrote of the step with these events."""
        written = self._written
        if written[COLUMN["kind"]] != TRAINING or written[COLUMN["edge_s"]]:
            return False
        begin = round(written[COLUMN["start_s"]] * 1e9) + self._began
        row = self.of(1, begin, noted)[0][0]
        same: npt.NDArray[np.bool_] = (row == written) | (np.isnan(row) & np.isnan(written))
        same[COLUMN["cpu_s"]] = True
        # The begin was rounded to seconds: what lies a nanosecond apart is the same.
        same[COLUMN["start_s"]] = same[COLUMN["wall_s"]] = abs(row - written)[[0, 1]].max() < 2e-9
        return bool(same.all())

    def last_samples(self, given: float) -> float:
        """What the ledger keeps of a step's last batch, whose samples are `given`: 0 where these are not the step's."""
        return given if self._counted[-1] else 0.0

    def bytes_a_copy(self) -> int:
        """As of the last step that was noted in full, on average."""
        return round(self._usual_bytes / self._copies) if self._copies else 0

    def in_epoch(self, epoch: int) -> None:
        """The rows to come are of this epoch."""
        self._template[COLUMN["epoch"]] = epoch

    def of(
        self,
        steps: int,
        begin: int,
        noted: Noted,
        split: Callable[[Rows], Rows] | None = None,
    ) -> tuple[Rows, int, Rows]:
        """The rows of `steps` steps that begin at `begin` ns, when the last ended, and the ns of each event.

        Args:
            steps: how many. begin: ns of the host clock.
            noted: their events and maybe more.
            split: of steps of which only batches and asks were noted: the ns of these in their columns.
        """
        events = len(self._matrix) if split is None else 2 * self._batches
        at = np.empty(1 + steps * events, dtype=np.int64)
        at[0], at[1:] = begin, noted.times[: steps * events]
        spent = (at[1:] - at[:-1]).reshape(steps, events).astype(np.float64)
        rows: Rows = spent @ self._matrix @ PLACES if split is None else split(spent)
        rows *= 1e-9  # the sums of whole numbers are exact until here
        rows += self._template
        rows[:, COLUMN["start_s"]] = (at[:-1:events] - self._began) * 1e-9
        given = np.asarray(noted.samples[: steps * self._batches])
        if self._batches > 1:
            each = given.reshape(steps, -1)
            given = each.sum(axis=1) if self._all else each[:, self._counted].sum(axis=1)
        rows[:, COLUMN["samples"]] = given
        if self._copies:
            if split is None:
                moved = np.asarray(noted.moved[: steps * self._copies]).reshape(steps, -1).sum(axis=1)
                self._usual_bytes = float(moved.mean())
            rows[:, COLUMN["transfer_bytes"]] = moved if split is None else self._usual_bytes
        return rows, int(at[-1]), spent


def no_loss(phases: list[int]) -> None:
    """What the ledger has taken back of the last forward's loss, among the phases noted."""
    for i in range(len(phases) - 1, -1, -1):
        if phases[i] in (FORWARD, NO_GRAD):
            return
        if phases[i] == LOSS:
            phases[i] = OTHER
