"""Counts the shapes of a module's inputs, and measures how much longer steps with a new shape take."""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

import numpy as np
import torch

from gpu_doctor.recording.setup import InputFacts

MOST_SHAPES: Final = 64
"""Maximum number of distinct shapes; further ones count as known."""
MOST_STEPS: Final = 1024
"""Maximum number of timed steps."""
WARM_STEPS: Final = 8
"""First steps that are not timed: everything is new and warms up in them."""
ALIKE: Final = 1.25
"""Largest ratio of two similar lengths. A step whose shape hardly comes again is compared with steps whose input has
similar lengths in every dimension: larger inputs take longer, and so do longer texts of as many tokens in all."""
FEWEST_ALIKE: Final = 3
"""Fewest steps to compare with: of the same shape if there are as many, else of similar shapes."""
SURE: Final = 3.0
"""Standard errors by which steps with new shapes must be longer. With two, one loop in twenty would be wrong, since
step times are not normally distributed."""


class Shapes:
    """Shapes of one module's first tensor argument."""

    def __init__(self) -> None:
        self.looked_at = self.new_steps = 0
        """Number of sampled forwards, and number of those with a new shape."""
        self._new_at: list[int] = []
        """Numbers of the forwards whose shape is not among the known ones."""
        self.counts: Counter[tuple[int, ...]] = Counter()
        """Number of forwards with each shape."""
        self.indices = 0
        """Largest number of elements in all integer tensors of one forward."""
        self.dtype = self.device = ""
        self.channels_last = False
        self._steps = self._cut = 0
        """Number of steps that ended, and number of steps in which sampling stopped before the end."""
        self._whole = self._whole_forwards = 0
        """Steps sampled from their start, and their forwards: a window may open in the middle of a step."""
        self._timed: list[tuple[tuple[int, ...], bool, float]] = []
        """Shape, True if it was new, and time in seconds of each timed step, which has one forward."""
        self._open: list[tuple[tuple[int, ...], bool]] = []
        """Shape, and True if it was new, of each forward in the step that has not ended."""

    def add(self, given: torch.Tensor, indices: int = 0) -> None:
        """Adds one forward by its first tensor, whose values are not read; `indices`: integers in all its tensors."""
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
        """Ends a step that took `seconds`, which is None if it was not sampled from its start."""
        given, self._open = self._open, []
        self._steps += 1
        if seconds is not None:
            self._whole, self._whole_forwards = self._whole + 1, self._whole_forwards + len(given)
        if seconds is not None and len(given) == 1 and self._steps > WARM_STEPS and len(self._timed) < MOST_STEPS:
            self._timed.append((*given[0], seconds))

    def cut(self) -> None:
        """Ends the sampling of a step with too many forwards."""
        self._cut += bool(self._open)
        self._open.clear()

    def new_shape_s(self) -> float:
        """Returns the extra time of all steps with a new shape over steps with a known one, in seconds.

        The known steps have the same shape, or else a similar one; steps without any to compare with are left out.

        Returns:
            0 if such steps differ as much by chance: a noisy loop has long steps of either kind. NaN if there are too
            few steps to compare.
        """
        timed = self._timed.copy()  # the training thread goes on, and this may be called on another one
        known: dict[tuple[int, ...], list[float]] = {}
        for shape, new, seconds in timed:
            if not new:
                known.setdefault(shape, []).append(seconds)
        sums = {shape: (len(all_s), math.fsum(all_s)) for shape, all_s in known.items()}
        alike = {shape: _alike(shape, sums) for shape in {step[0] for step in timed}}
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
        # Standard error of a sum of as many deviations from a mean that is uncertain itself.
        chance = float(np.std(again)) * math.sqrt(len(first) * (1.0 + len(first) / len(again)))
        extra = math.fsum(first)
        return extra if extra > SURE * chance else 0.0

    def facts(self, most: int = 0) -> InputFacts:
        """Returns the facts so far; `most` is the maximum number of forwards sampled in a step."""
        # In a step with very many forwards only the first ones were sampled, and not its end.
        forwards, steps = (
            (self._whole_forwards, self._whole) if self._whole else (self.looked_at, self._steps + self._cut)
        )
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
            per_step=forwards / steps if steps else None,
            most_per_step=most,
            indices=self.indices,
        )


def _alike(shape: tuple[int, ...], sums: dict[tuple[int, ...], tuple[int, float]]) -> tuple[int, float]:
    """Returns the number of steps with similar lengths in every dimension, and their time in seconds."""
    found = [
        steps
        for other, steps in sums.items()
        if len(other) == len(shape)
        and all(a <= ALIKE * b and b <= ALIKE * a for a, b in zip(other, shape, strict=True))
    ]
    return sum(count for count, _ in found), math.fsum(seconds for _, seconds in found)
