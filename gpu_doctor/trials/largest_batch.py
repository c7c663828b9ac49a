"""Finds the largest batch that fits into a GPU's memory, by the memory fit and at most three short trials.

The result is a size that ran: the fit proposes a size, and a trial shows whether it fits and how fast it is. The
largest batch need not be the best: beyond the size that keeps the card busy, more samples only take longer. Both are
reported. GPU: not yet run on one.
"""

from __future__ import annotations

import itertools
import math
import sys
from dataclasses import replace
from typing import Any, Final, Protocol

from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.diagnosis.vitals.memory_fit import memory_fit
from gpu_doctor.recording import CLEAN, Recording
from gpu_doctor.trials import run as trial
from gpu_doctor.trials.beforehand import beforehand
from gpu_doctor.trials.knobs.found_loaders import trained_from
from gpu_doctor.trials.results import MARGIN, Largest, left_behind
from gpu_doctor.trials.runner import Aside, Runner
from gpu_doctor.trials.searches import no_largest
from gpu_doctor.trials.side_budget import LONGEST
from gpu_doctor.trials.snapshot.tensors import SnapshotTooLarge

MOST_PROBES: Final = 3
PROBE_STEPS: Final = 8
"""Steps of a trial. The optimizer allocates its memory in the first step, so the peak is reached from the second step
on; the others measure speed."""
AS_FAST: Final = 0.97
"""Part of the highest samples/s that the best size must reach. The smallest such size is best: it changes the training
least."""
SECONDS: Final = 120.0
ROUND_TO: Final = 8
"""Larger batches are multiples of this number, which suits tensor cores (NVIDIA's matrix multiplication guide)."""
NEAR: Final = 0.03
"""The search ends if the fit's new estimate exceeds the largest fitting size by at most this part."""
LEVEL: Final = 1.01
"""Largest ratio of two peaks that count as equal."""
STEP_BACK: Final = 0.7
"""Position of the next size after one that did not fit, between the largest fitting size (0) and that one (1)."""
FAR: Final = 2.0
"""Largest ratio of that position to the size that surely fits; beyond it, the surely fitting size is tried."""
HARDLY_RISES: Final = "Memory hardly grew with the batch size: larger batches may fit."


def largest_batch(case: Runner, *, memory: Memory | None = None, seconds: float = SECONDS) -> Largest:
    """Searches for the largest batch that fits, in at most three trials of a few steps, then restores everything.

    Args:
        case: case that has run once, on a GPU.
        memory: memory of the device; None to read it through torch.
        seconds: time to measure in all trials together; set-up is extra (see `side_budget`).

    Raises:
        KeyboardInterrupt: The search was interrupted; everything is restored.
        ValueError: `seconds` is not positive.
        Busy: A run is already being recorded in this process.
    """
    trial.check_start(None, seconds, "search")
    run = case.baseline
    if run is None:
        return Largest(None, reason="Run the code once first: the batch size is not known.")
    why_not, loader = no_largest(run.setup), trained_from(run.setup)
    if why_not or loader is None or not loader.batch_size:
        return Largest(None, reason=why_not)
    if refusal := beforehand(case).refusal:
        return Largest(None, reason=refusal)
    device, most = memory or CardMemory(run.setup.device), loader.dataset_len or 1 << 20
    try:
        # On the card the copies would be a part of every peak, and what they take is not there for a larger batch.
        with case.aside(to_host=True) as aside:
            search = _Search(aside, run, device, loader.batch_size, most, seconds)
            found = search.run()
    except SnapshotTooLarge as too_large:
        return Largest(None, reason=str(too_large))
    return replace(found, notes=left_behind((), aside.lost))


class _Search:
    def __init__(self, aside: Aside, run: Recording, memory: Memory, now: int, most: int, seconds: float) -> None:
        self._case, self._memory, self._now, self._most = aside.case, memory, now, most
        self._rounds = aside.rounds()
        self._seconds = seconds
        self._limit = memory.limit_bytes()
        self._tried: list[tuple[int, float | None]] = []
        self._full = run.outcome == "out-of-memory"
        """True if the batch as written did not fit."""
        known = math.isfinite(run.peak_bytes) and not self._full
        self._seen: dict[int, float] = {now: run.peak_bytes} if known else {}
        """Batch size -> peak memory in bytes, for the sizes that ran."""
        self._rates: dict[int, float] = {}
        """Batch size -> samples/s, for the sizes that ran."""
        self._timed(now, run)
        self._reason = ""

    def run(self) -> Largest:
        """Probes batch sizes and returns the answer."""
        size: int | None = self._second_size() if self._seen or self._full else self._now
        while size is not None and len(self._tried) < MOST_PROBES and self._probe(size):
            size = self._next()
        return self._answer()

    def _second_size(self) -> int:
        """Returns twice the batch as written if that surely fits, else half of it."""
        doubled = 2 * self._now
        if self._full:
            return max(self._now // 2, 1)
        return doubled if 2 * self._seen[self._now] <= self._room and doubled <= self._most else max(self._now // 2, 1)

    @property
    def _room(self) -> float:
        return (1.0 - MARGIN) * self._limit

    def _next(self) -> int | None:
        """Returns the next size to try; None if the answer is good enough."""
        failed = [size for size, peak in self._tried if peak is None] + ([self._now] if self._full else [])
        if len(self._seen) < 2 and not failed:
            return self._second_size()
        fitting = max((size for size, peak in self._seen.items() if peak <= self._room), default=0)
        fit = memory_fit(self._seen.items())
        wanted = fit.most_samples(self._room) if fit is not None else 0
        # k times the batch needs at most k times the memory, from whatever size on the memory rises.
        surely = int(fitting * self._room / self._seen[fitting]) if fitting else 0
        if self._level():
            wanted = min(wanted, surely) if fit is not None else surely
        wanted = min(wanted, self._most)
        if failed:
            between = int(fitting + STEP_BACK * (min(failed) - fitting))
            if fitting and between > FAR * surely:  # memory does not rise linearly, so the fit's estimate is wrong
                between = surely
            wanted = min(wanted, between) if wanted else between
        wanted = _rounded(wanted)
        return None if wanted in dict(self._tried) or wanted <= (1.0 + NEAR) * fitting else wanted

    def _level(self) -> bool:
        """True if the peak did not rise from one size to the next: there the optimizer sets it, not the batch.

        A line through such a size rises too little, and promises too much.
        """
        peaks = [peak for _, peak in sorted(self._seen.items())]
        return any(after <= LEVEL * before for before, after in itertools.pairwise(peaks))

    def _probe(self, size: int) -> bool:
        """Tries a size; returns False if the search ends with it."""
        left_s = self._seconds - self._rounds.spent_s
        if left_s <= 0 or self._case.stopped:
            self._reason = "The search was stopped." if self._case.stopped else "The search ran out of time."
            return False
        self._case.say(f"trial {len(self._tried) + 1} of at most {MOST_PROBES}: a batch of {size}")
        self._memory.reset()
        kept: list[Recording] = []
        settings = {} if size == self._now else {"batch_size": size}
        self._rounds.side(settings, "probe", PROBE_STEPS, left_s / LONGEST, kept)
        recording = kept[-1]
        if recording.outcome == "out-of-memory":
            self._tried.append((size, None))
            return True
        if recording.outcome not in CLEAN or not len(recording.steps):
            self._reason = recording.reason or f"A trial with a batch of {size} ended: {recording.outcome}."
            return False
        peak = self._memory.peak_bytes()
        self._tried.append((size, peak))
        self._seen[size] = peak
        self._timed(size, recording)
        return True

    def _timed(self, size: int, run: Recording) -> None:
        rate = measure(run).samples_per_s
        if rate is not None:
            self._rates[size] = rate

    def _answer(self) -> Largest:
        good = {size: peak for size, peak in self._seen.items() if peak <= self._room}
        fit, peaks = memory_fit(self._seen.items()), tuple(sorted(self._seen.items()))
        if not good:
            why = self._reason or "Every batch size that was tried leaves too little memory free."
            return Largest(None, None, self._limit, fit, tuple(self._tried), why, peaks=peaks)
        size = max(good)
        rates = tuple(sorted((batch, rate) for batch, rate in self._rates.items() if batch in good))
        most = max((rate for _, rate in rates), default=0.0)
        best, fast = next(((batch, rate) for batch, rate in rates if rate >= AS_FAST * most), (None, None))
        tried, reason = tuple(self._tried), self._reason
        if not reason and self._level() and (1.0 + NEAR) * good[size] < self._room and size < self._most:
            reason = HARDLY_RISES if all(peak is not None for _, peak in tried) else ""
        return Largest(size, good[size], self._limit, fit, tried, reason, best, fast, rates, peaks=peaks)


def _rounded(size: int) -> int:
    return size // ROUND_TO * ROUND_TO if size >= 2 * ROUND_TO else size


class Memory(Protocol):
    """A device's memory, as the search needs it."""

    def reset(self) -> None:
        """Forget the peak so far."""

    def peak_bytes(self) -> float:
        """Returns the highest use since the reset, in bytes."""

    def limit_bytes(self) -> float:
        """Returns the bytes that this process could hold."""


class CardMemory:
    """The memory of a CUDA device, read through torch, which the code under trial has imported.

    The search resets torch's own peak (`torch.cuda.max_memory_allocated`), which the user's code may read.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._cuda: Any = sys.modules["torch"].cuda

    def reset(self) -> None:
        """See `Memory`."""
        self._cuda.reset_peak_memory_stats(self._device)

    def peak_bytes(self) -> float:
        """See `Memory`."""
        return float(self._cuda.max_memory_allocated(self._device))

    def limit_bytes(self) -> float:
        """Returns the device's free bytes plus those that torch holds; other processes' share is left out."""
        free, _ = self._cuda.mem_get_info(self._device)
        return float(free) + float(self._cuda.memory_reserved(self._device))
