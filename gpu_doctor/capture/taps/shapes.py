"""What shapes a module is handed, and how much longer the steps take in which a shape comes for the first time."""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

import numpy as np
import torch

from gpu_doctor.recording.setup import InputFacts

MOST_SHAPES: Final = 64
MOST_STEPS: Final = 1024
WARM_STEPS: Final = 8
"""In the first steps everything is new and everything warms up: they are not timed."""
ALIKE: Final = 1.25
"""A step whose shape hardly comes again is compared with those whose input is as long in every dimension, give or take
a quarter: larger inputs take longer, and so do longer texts of as many tokens in all."""
FEWEST_ALIKE: Final = 3
"""Steps to compare with: of the same shape where it came so often again, else of shapes alike."""
SURE: Final = 3.0
"""Standard errors by which new shapes must take longer: steps are no bell curve, two would be one loop in twenty."""


class Shapes:
    """The shapes of one module's first tensor argument."""

    def __init__(self) -> None:
        self.looked_at = self.new_steps = 0
        self._new_at: list[int] = []
        """Numbers of the forwards with a shape that was not known, so many that are told apart."""
        self.counts: Counter[tuple[int, ...]] = Counter()
        self.indices = 0
        """Elements of all integer tensors of one forward, the most that were seen."""
        self.dtype = self.device = ""
        self.channels_last = False
        self._steps = self._cut = 0
        self._whole = self._whole_forwards = 0
        """Steps that were looked at from their begin, and their forwards: a window may open in the middle of a step."""
        self._timed: list[tuple[tuple[int, ...], bool, float]] = []
        """Shape, whether it was new, seconds: of steps with one forward."""
        self._open: list[tuple[tuple[int, ...], bool]] = []
        """As above, of forwards whose step has not ended."""

    def add(self, given: torch.Tensor, indices: int = 0) -> None:
        """One forward's first tensor, and how many integers all of them hold; values are not read."""
        self.indices = max(self.indices, indices)
        shape = tuple(int(length) for length in given.shape)
        new = shape not in self.counts and self.looked_at > 0
        if new:
            self._new_at.append(self.looked_at)
        self.looked_at += 1
        if shape in self.counts or len(self.counts) < MOST_SHAPES:
            self.counts[shape] += 1
        else:
            new = False  # it may have been seen before
        self.new_steps += new
        self._open.append((shape, new))
        if not self.dtype:
            self.dtype = str(given.dtype).removeprefix("torch.")
            self.device = str(given.device)
            kinds = {4: torch.channels_last, 5: torch.channels_last_3d}
            kind = kinds.get(given.dim())
            last = kind is not None and given.layout is torch.strided and given.is_contiguous(memory_format=kind)
            self.channels_last = last and not given.is_contiguous()

    def step(self, seconds: float | None) -> None:
        """A step has ended; `seconds` None = it was not timed as a whole."""
        given, self._open = self._open, []
        self._steps += 1
        if seconds is not None:
            self._whole, self._whole_forwards = self._whole + 1, self._whole_forwards + len(given)
        if seconds is not None and len(given) == 1 and self._steps > WARM_STEPS and len(self._timed) < MOST_STEPS:
            self._timed.append((*given[0], seconds))

    def cut(self) -> None:
        """No more forwards of this step are looked at: there were many."""
        self._cut += bool(self._open)
        self._open.clear()

    def new_shape_s(self) -> float:
        """Seconds by which steps with a new shape exceeded those with a known one: the same one, or else alike.

        0 where that is no more than such steps differ by chance: a noisy loop has long steps of either kind. NaN where
        there is nothing to compare; steps without their like are left out.
        """
        timed = self._timed.copy()  # the training thread goes on, and this may be asked on another one
        known: dict[tuple[int, ...], list[float]] = {}
        for shape, new, seconds in timed:
            if not new:
                known.setdefault(shape, []).append(seconds)
        sums = {shape: (len(all_s), math.fsum(all_s)) for shape, all_s in known.items()}
        alike = {shape: _alike(shape, sums) for shape in {one[0] for one in timed}}
        first: list[float] = []
        again: list[float] = []
        for shape, new, seconds in timed:
            own = 0 if new else 1
            for count, sum_s in (sums.get(shape, (0, 0.0)), alike[shape]):
                if count - own >= FEWEST_ALIKE:
                    usual = (sum_s - own * seconds) / (count - own)
                    (first if new else again).append(seconds - usual)
                    break
        if not first or len(again) < FEWEST_ALIKE:
            return float("nan")
        # Of a sum of as many deviations, from a mean over the known ones that is uncertain itself.
        chance = float(np.std(again)) * math.sqrt(len(first) * (1.0 + len(first) / len(again)))
        extra = math.fsum(first)
        return extra if extra > SURE * chance else 0.0

    def facts(self, most: int = 0) -> InputFacts:
        """All of it, by now; `most` forwards of a step were looked at."""
        # Of a step with very many forwards only the first ones were looked at, and its end not.
        told = (self._whole_forwards, self._whole) if self._whole else (self.looked_at, self._steps + self._cut)
        return InputFacts(
            looked_at=self.looked_at,
            shapes=len(self.counts),
            shape=self.counts.most_common(1)[0][0] if self.counts else (),
            dtype=self.dtype,
            device=self.device,
            channels_last=self.channels_last,
            new_shape_steps=self.new_steps,
            new_shape_s=self.new_shape_s(),
            new_late=sum(at >= self.looked_at / 2 for at in self._new_at),
            per_step=told[0] / told[1] if told[1] else None,
            most_per_step=most,
            indices=self.indices,
        )


def _alike(shape: tuple[int, ...], sums: dict[tuple[int, ...], tuple[int, float]]) -> tuple[int, float]:
    """Steps of all shapes that are about as long in every dimension, and their seconds."""
    found = [
        one
        for other, one in sums.items()
        if len(other) == len(shape)
        and all(a <= ALIKE * b and b <= ALIKE * a for a, b in zip(other, shape, strict=True))
    ]
    return sum(count for count, _ in found), math.fsum(seconds for _, seconds in found)
