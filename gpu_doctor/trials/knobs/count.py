"""Knobs that are whole numbers: how they are offered and how a person types them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Final

from gpu_doctor.recording import Setup
from gpu_doctor.trials.knobs.knob import Choice, Knob, choice

MOST_AT_ONCE: Final = 256
"""Processes or threads. A worker takes about four of the 1024 files that a process may usually open (`ulimit -n`), and
a slip of the finger (`num_workers=100000`) must not take the machine down."""


class CountKnob(Knob):
    """The base class of knobs whose values are whole numbers."""

    kind: type[int] = int
    least: int = 1
    most: int = 2**31 - 1

    @abstractmethod
    def counts(self, setup: Setup) -> Iterable[int]:
        """Returns the numbers to offer, in any order."""

    def choices(self, setup: Setup) -> tuple[Choice, ...]:
        """See `Knob`."""
        return tuple(choice(self, value, str(value), setup) for value in sorted(set(self.counts(setup))))

    def parsed(self, text: str) -> int:
        """See `Knob`."""
        try:
            number = int(text.replace("_", "").strip())
        except ValueError:
            number = self.least - 1
        such_as = f"such as {self.name}={max(self.least, 4)}."
        if number < self.least:
            raise ValueError(f"{self.name} takes a whole number of at least {self.least}, {such_as}")
        if number > self.most:
            raise ValueError(f"{self.name} takes a whole number from {self.least} to {self.most}, {such_as}")
        return number


def powers_up_to(most: int) -> set[int]:
    """1, 2, 4, ... up to `most` and to 512."""
    return {2**power for power in range(10) if 2**power <= most}
