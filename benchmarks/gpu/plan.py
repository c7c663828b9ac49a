"""The parts of the proof, in the order in which they run, and how long each may take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

REHEARSED_S: Final = 150.0
"""A part of the rehearsal may take so long; all of them take two minutes where nobody else computes."""


@dataclass(frozen=True)
class Part:
    """One part: `benchmarks.gpu.parts.<module>`, run in a process of its own."""

    name: str
    holds: str
    minutes: float
    """At most; then it is ended, and what it has found so far stays."""

    @property
    def module(self) -> str:
        """Where it stands."""
        return f"benchmarks.gpu.parts.{self.name.replace('-', '_')}"

    def limit_s(self, rehearse: bool) -> float:
        """Seconds that it may take."""
        return REHEARSED_S if rehearse else 60.0 * self.minutes


PARTS: Final = (
    Part("nvml", "our readings of the card beside those of nvidia-smi", 0.5),
    Part("kineto", "gap, busy time and phases beside torch.profiler's trace of the same steps", 1.5),
    Part("own-cost", "what watching costs a step, bare and watched in turns", 1.5),
    Part("patients", "sick loops and their cures by the clock, beside the diagnosis and its forecast", 7.0),
    Part("precision", "fp16 with a scaler and bf16: speed and losses, by hand and by knob", 1.5),
    Part("largest-batch", "the largest batch as foretold, and as found by running out of memory", 1.0),
    Part("articles", "the figures that articles on starving GPUs tell", 2.5),
    Part("trials", "trials whose truth is known: copies, equal sides, work that is still queued", 1.5),
    Part("recordings", "eight loops recorded for the tutorials", 1.0),
    Part("tests", "tests/gpu by pytest", 7.0),
)
"""Dearest last: with little time left, most is known. All of them take 25 minutes at most."""
