"""The rows of steps that repeat in a loop that pulls from no loader, see `blockrows`.

Such a step has ended where its optimizer stepped, which is known only when it steps again. So what is noted between two
of these moments is the end of one step and most of the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gpu_doctor.capture.blockrows import COLUMN, PLACES, Rows
from gpu_doctor.capture.eventnotes import LEAF, OPTIMIZER_DONE, Noted, is_copy, is_forward
from gpu_doctor.recording.steps import PHASE_COUNT, TRAINING

_NAN: Final = float("nan")
_MADE: Final = [
    *np.flatnonzero(PLACES.any(axis=0)).tolist(),
    *(COLUMN[name] for name in ("start_s", "cpu_s", "samples", "transfer_bytes")),
]


@dataclass
class Open:
    """What the ledger has of the step that is open when its optimizer is about to step."""

    acc: Sequence[int]
    """ns by phase."""
    begin: int
    mark: int
    """ns of the host clock: its begin, and now."""
    samples: float
    moved: int


class AloneRows:
    """The formula of one rhythm."""

    def __init__(
        self, codes: Sequence[Any], phases: Sequence[int], fed: Sequence[bool], written: Rows, began: int
    ) -> None:
        """Nothing is tried yet, see `holds`.

        Args:
            codes: from when an optimizer is about to step to when it is again. phases: that each event ends.
            fed: of each forward, whether its samples are those of the step. written: the newest row of the ledger's.
            began: ns of the host clock at the run's begin.
        """
        matrix = np.zeros((len(phases), PHASE_COUNT))
        matrix[np.arange(len(phases)), phases] = 1.0
        self._split = len(codes) - list(reversed(codes)).index(OPTIMIZER_DONE)
        """Events of the step that has begun before."""
        self._done, self._rest = matrix.copy(), matrix
        self._done[self._split :] = 0.0
        self._rest[: self._split] = 0.0
        places = [at for at, code in enumerate(codes) if is_forward(code)]
        self._late = [i for i, (at, own) in enumerate(zip(places, fed, strict=True)) if own and at >= self._split]
        self._forwards, self._copies = len(places), sum(map(is_copy, codes))
        self.possible = LEAF not in codes[: self._split]
        self._written, self._template, self._began = written, written.copy(), began
        self._template[_MADE] = 0.0
        if np.isnan(written[COLUMN["sync_s"]]):  # waits are not measured
            self._template[COLUMN["sync_s"]] = np.nan

    def holds(self, before: Open, noted: Noted, after: Open) -> bool:
        """Whether the formula gives, to the last bit, the ledger's row and what it has of the open step."""
        written = self._written
        if not self.possible or written[COLUMN["kind"]] != TRAINING or written[COLUMN["edge_s"]]:
            return False
        rows, left = self.of(1, before, noted)
        same: npt.NDArray[np.bool_] = (rows[0] == written) | (np.isnan(rows[0]) & np.isnan(written))
        same[COLUMN["cpu_s"]] = True
        alike = left.samples == after.samples or (left.samples != left.samples and after.samples != after.samples)
        places = (left.begin, left.mark, left.moved) == (after.begin, after.mark, after.moved)
        return bool(same.all()) and alike and places and list(left.acc) == list(after.acc)

    def in_epoch(self, epoch: int) -> None:
        """The rows to come are of this epoch."""
        self._template[COLUMN["epoch"]] = epoch

    def of(self, steps: int, before: Open, noted: Noted) -> tuple[Rows, Open]:
        """The rows of `steps` steps, the first of which is open, and what is open after them.

        Args:
            steps: how many. before: what is open. noted: their events and maybe more.
        """
        events = len(self._done)
        at = np.empty(1 + steps * events, dtype=np.int64)
        at[0], at[1:] = before.mark, noted.times[: steps * events]
        spent = (at[1:] - at[:-1]).reshape(steps, events).astype(np.float64)
        rest = spent @ self._rest
        whole = spent @ self._done
        whole[0] += np.asarray(before.acc, dtype=np.float64)
        whole[1:] += rest[:-1]
        rows: Rows = whole @ PLACES
        rows *= 1e-9  # the sums of whole numbers are exact until here
        rows += self._template
        ends = at[self._split :: events]
        rows[0, COLUMN["start_s"]] = (before.begin - self._began) * 1e-9
        rows[1:, COLUMN["start_s"]] = (ends[:-1] - self._began) * 1e-9
        samples, moved = np.full(steps, _NAN), np.zeros(steps, dtype=np.int64)
        if self._late:
            samples = np.asarray(noted.inputs[: steps * self._forwards]).reshape(steps, -1)[:, self._late].sum(axis=1)
        if self._copies:
            moved = np.asarray(noted.moved[: steps * self._copies]).reshape(steps, -1).sum(axis=1)
        rows[:, COLUMN["samples"]] = [before.samples, *samples[:-1]]
        rows[:, COLUMN["transfer_bytes"]] = [before.moved, *moved[:-1]]
        left = Open([int(ns) for ns in rest[-1]], int(ends[-1]), int(at[-1]), float(samples[-1]), int(moved[-1]))
        return rows, left
