"""What a trial asks of a cluster: cores for the loop and for its loader's workers, GPUs, and its part of the machines.

Ray gives out cores by what is asked for, not by what is used: a trial that asks for one and starts eight workers has
others sent beside it, and both are measured against each other. One that asks for more than any machine has never runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpu_doctor import formatting
from gpu_doctor.recording import Settings, Setup
from gpu_doctor.trials.knobs.found_loaders import meant


@dataclass(frozen=True)
class Request:
    """What one trial asks for."""

    cpus: float
    gpus: float
    more: Mapping[str, float] = field(default_factory=dict)
    """Further resources by name, such as `{"a100": 1}`."""

    def room(self, machines: Iterable[Mapping[str, float]]) -> int:
        """How many such trials the machines hold at once; each is told by what it has."""
        asked = {name: amount for name, amount in {"CPU": self.cpus, "GPU": self.gpus, **self.more}.items() if amount}
        held = (min((int(has.get(name, 0) // amount) for name, amount in asked.items()), default=1) for has in machines)
        return sum(held)

    def within(self, machines: Sequence[Mapping[str, float]]) -> Request:
        """The same with no more cores than the largest machine has that can meet the rest of it.

        Where none can, and on a machine that has no cores to give, it stays as it is.
        """
        rest = Request(0, self.gpus, self.more)
        most = max((float(has.get("CPU", 0)) for has in machines if rest.room([has])), default=0.0)
        return Request(min(self.cpus, most) if most else self.cpus, self.gpus, self.more)

    def __str__(self) -> str:
        wanted = ((self.cpus, "CPU"), (self.gpus, "GPU"))
        plain = (f"{formatting.average(amount)} {name}{'' if amount == 1 else 's'}" for amount, name in wanted)
        return ", ".join([*plain, *(f"{formatting.average(amount)} {name}" for name, amount in self.more.items())])


def cores(found: Setup | None, sides: Iterable[Settings], threads: int) -> int:
    """The cores that a trial keeps busy: the loop's, and one for each worker of its loader.

    Args:
        found: what a run found of the loop, None before any.
        sides: the settings of baseline and candidate, which run one after the other.
        threads: that the loop computes with: one where a GPU computes.
    """
    written = max((one.num_workers for one in meant(found)), default=0) if found is not None else 0
    return max(_whole(side.get("threads"), threads) + _whole(side.get("num_workers"), written) for side in sides)


def _whole(value: Any, usual: int) -> int:
    """A setting's number; what is none is refused where it is turned."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else usual
