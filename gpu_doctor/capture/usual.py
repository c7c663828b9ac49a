"""What the steps of one rhythm are usually made of: learnt from those timed in full, lent to those that are not.

A step that is not timed in full has its wait, its wall-clock and its samples measured as ever; what lies between the
batch and the next ask is split as that of the steps timed. What goes far beyond the usual is no step's work: it is
billed to where it went in the steps timed, or to `other` where they had no such thing.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gpu_doctor.capture.blockrows import COLUMN, PLACES, Rows
from gpu_doctor.capture.eventnotes import DELIVERED, FORWARDS, GRADIENT, OPTIMIZER_DONE, Noted
from gpu_doctor.recording import PHASES
from gpu_doctor.recording.steps import DATA_WAIT, FORWARD, LOSS, NO_GRAD, OTHER, PHASE_COUNT

FAR: Final = 3.0
"""What takes so many times the usual is more than the usual work."""
FEWEST: Final = 16
"""Steps from which on the usual is known."""
REMEMBERED: Final = 1024
"""Steps after which older ones count half: a loop may change slowly."""

_WALL: Final = COLUMN["wall_s"]

Times = npt.NDArray[np.float64]


class Usual:
    """Learns from blocks of steps of one pattern."""

    def __init__(self, codes: Sequence[Any], phases: Sequence[int]) -> None:
        """Args: codes: of a step's events. phases: that each of them ends."""
        self._codes, self._phases = list(codes), list(phases)
        asks = [at for at, code in enumerate(codes) if not isinstance(code, int)]
        self._batches = [at for at, code in enumerate(codes) if code == DELIVERED]
        self._works = [slice(batch + 1, ask + 1) for batch, ask in zip(self._batches, asks, strict=True)]
        """The events between a batch and the ask that follows, with it."""
        self._steps = [at for at, code in enumerate(codes) if isinstance(code, int) and code > FORWARDS[-1]]
        self.possible = self._is_plain(asks)
        """Whether batches and optimizer steps alone tell such steps from others."""
        self.known = 0.0
        """Steps learnt from, those long ago not counted in full,"""
        self._sums = np.zeros(len(codes))
        """their nanoseconds by event,"""
        self._typical = np.zeros(len(self._works))
        """the usual nanoseconds of each part between a batch and the next ask,"""
        self._shares = np.zeros((len(self._works), PHASE_COUNT))
        """how they are split,"""
        self._lent: Rows = np.zeros((2 * len(self._works), PLACES.shape[1]))
        """(waits and these parts, by column of the step table)"""
        self._lent[::2] = PLACES[DATA_WAIT]
        self._far = np.zeros(PHASE_COUNT)
        """and what went far beyond that, by phase."""
        self._matrix = np.zeros((len(codes), PHASE_COUNT))
        self._matrix[np.arange(len(codes)), self._phases] = 1.0
        self.worked_ns = 0.0
        """Of all steps timed, without their waits."""
        self.rested_ns = self.rested_far_ns = 0.0
        """Of all others that were split since the last look, and what of it went far beyond the usual."""

    def _is_plain(self, asks: list[int]) -> bool:
        codes, phases = self._codes, self._phases
        if (
            len({id(codes[at]) for at in asks}) != 1
            or len(self._steps) != 1
            or not self._batches
            or self._batches[0] != 0
            or GRADIENT in codes
        ):
            return False
        turns = all(one < two for one, two in zip(self._batches, asks, strict=True))
        turns = turns and all(one + 1 == two for one, two in zip(asks, self._batches[1:], strict=False))
        waits = all(phases[at] == DATA_WAIT for at in self._batches) and phases.count(DATA_WAIT) == len(asks)
        done = OPTIMIZER_DONE in codes[self._steps[0] :]
        return turns and waits and done and self._steps[0] > self._batches[-1] and asks[-1] == len(codes) - 1

    def same(self, codes: Sequence[Any], phases: Sequence[int]) -> bool:
        """Whether it is of this pattern, whatever iterator is pulled from."""
        if len(codes) != len(self._codes) or list(phases) != self._phases:
            return False
        both = zip(codes, self._codes, strict=True)
        return all(one == two if isinstance(one, int) else not isinstance(two, int) for one, two in both)

    def has(self, code: int) -> bool:
        """Whether the event is one of a step's."""
        return code in self._codes

    def far_share(self) -> float:
        """Part of the work of the steps timed that went far beyond the usual."""
        return float(self._far.sum()) / self.worked_ns if self.worked_ns else 0.0

    # ---- learning -----------------------------------------------------------------------------------------------

    def learn(self, spent: Times) -> None:
        """Steps that were timed in full; `spent`: ns of each event of each, shape (steps, events)."""
        if len(spent) < FEWEST and not self.known:
            return
        keep = 0.5 if self.known > REMEMBERED else 1.0
        self.known = self.known * keep + len(spent)
        self.worked_ns *= keep
        self._far *= keep
        for part, works in enumerate(self._works):
            events = spent[:, works]
            work = events.sum(axis=1)
            if len(work) >= FEWEST:
                self._typical[part] = np.sort(work)[len(work) // 2]
            typical = self._typical[part]
            self.worked_ns += float(work.sum())
            far = work > FAR * typical
            near = events[~far] if far.any() else events
            self._sums[works] = self._sums[works] * keep + near.sum(axis=0)
            if len(near) < len(events):
                beyond = events[far].sum(axis=0) - (len(events) - len(near)) * self._means(part)
                self._far += np.maximum(beyond, 0.0) @ self._matrix[works]
            shares = self._sums[works] @ self._matrix[works]
            self._shares[part] = shares / max(shares.sum(), 1.0)
            self._lent[2 * part + 1] = self._shares[part] @ PLACES
            self._lent[2 * part + 1, _WALL] = 1.0

    def told(self, row: Sequence[float]) -> None:
        """A step with something in it that its rhythm does not have; `row`: as the ledger wrote it."""
        if not self.known:
            return
        values = np.zeros(PHASE_COUNT)
        for phase, name in enumerate(PHASES):
            values[phase] = row[COLUMN[f"{name}_s"]] * 1e9
        values = np.nan_to_num(values)
        values[OTHER] = max(row[COLUMN["wall_s"]] * 1e9 - values.sum(), 0.0)
        values[DATA_WAIT] = 0.0
        work = float(values.sum())
        self.worked_ns += work
        if work > FAR * self._typical.sum():
            usual = self._typical @ self._shares
            usual[OTHER] += usual[LOSS]
            usual[FORWARD] += usual[NO_GRAD]
            self._far += np.maximum(values - usual, 0.0)

    def _means(self, part: int) -> Times:
        """Usual ns of the events between a batch and the next ask."""
        sums = self._sums[self._works[part]]
        means: Times = sums * (self._typical[part] / max(float(sums.sum()), 1.0))
        return means

    # ---- lending ------------------------------------------------------------------------------------------------

    def split(self, spent: Times) -> Rows:
        """Steps of which waits and work were timed: ns by column of the step table; `spent`: (steps, 2 * batches)."""
        rows: Rows = spent @ self._lent
        for part, typical in enumerate(self._typical):
            work = spent[:, 2 * part + 1]
            self.rested_ns += float(work.sum())
            far = work > FAR * typical
            if far.any():
                beyond = work[far] - typical
                self.rested_far_ns += float(beyond.sum())
                moved = (self._gone() - self._shares[part]) @ PLACES
                moved[_WALL] = 0.0
                rows[far] += beyond[:, None] * moved
        return rows

    def _gone(self) -> Times:
        """Where it goes what lies far beyond the usual: the phases' parts of it."""
        whole = float(self._far.sum())
        shares = self._far / whole if whole else np.zeros(PHASE_COUNT)
        shares[OTHER] += 0.0 if whole else 1.0
        return shares

    def filled(self, noted: Noted, stepped: Sequence[int], now: int) -> Noted:
        """A step that was broken off, with the events between its batches at their usual distances.

        Args:
            noted: its batches and asks. stepped: ids of the optimizers that have stepped since the last ask but one,
                or since the last one where a batch came after it. now: ns of the host clock.
        """
        full, part, begin = Noted(), 0, 0
        full.samples = noted.samples
        last = len(noted.codes) - 1
        for at, (code, ns) in enumerate(zip(noted.codes, noted.times, strict=True)):
            if code == DELIVERED:
                begin = ns
            elif not isinstance(code, int):
                if at == last and stepped:
                    self._fill(full, len(self._works) - 1, begin, ns, stepped)
                else:
                    self._fill(full, min(part, len(self._works) - 1), begin, ns, ())
                part += 1
            full.codes.append(code)
            full.times.append(ns)
        if stepped and noted.codes and noted.codes[-1] == DELIVERED:
            self._fill(full, len(self._works) - 1, begin, now, stepped, to_the_step=True)
        full.inputs = array("d", [float("nan")] * sum(code in FORWARDS for code in full.codes if isinstance(code, int)))
        return full

    def _fill(
        self, full: Noted, part: int, begin: int, end: int, stepped: Sequence[int], to_the_step: bool = False
    ) -> None:
        """Adds the events of one part but the ask, spread from `begin` to `end`."""
        works = self._works[part]
        codes, at = self._codes[works], np.cumsum(self._means(part))
        first = self._steps[0] - works.start if part == len(self._works) - 1 else len(codes)
        done = codes.index(OPTIMIZER_DONE, first) if first < len(codes) else first
        last = done if to_the_step else len(codes) - 1
        whole = float(at[last])
        scale = (end - begin) / whole if whole else 0.0
        if to_the_step:
            scale = min(scale, 1.0)
        for number, code in enumerate(codes[: last + to_the_step]):
            if first <= number <= done and not stepped:
                continue
            ns = begin + round(float(at[number]) * scale)
            full.codes.append(stepped[0] if number == first else code)
            full.times.append(ns)
            for more, key in enumerate(stepped[1:] if number == done else (), 1):
                later = ns + (end - ns) * more // len(stepped)
                full.codes.extend((key, OPTIMIZER_DONE))
                full.times.extend((later, later))
