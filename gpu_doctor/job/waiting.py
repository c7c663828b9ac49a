"""Who waits for whom: the ranks' steps side by side, by their numbers.

Ranks that train one model average their gradients in each backward, so all of their steps take equally long, and a
slow rank looks like the others. What tells it apart is its own work, all that it does before it meets the others in
the backward: the longest is waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from gpu_doctor.diagnosis import FEWEST_STEPS
from gpu_doctor.job.rank import DISTRIBUTED, FULLY_SHARDED, PHASES, Rank

Table: TypeAlias = npt.NDArray[np.float64]
LATE_SHARE: Final = 0.10
"""A rank is late from this part of a step on: losses of 10 % or more stand first in a diagnosis, too. Ranks that do the
same on two busy cores were found 8 % apart."""


@dataclass(frozen=True)
class Waiting:
    """What the ranks wait for each other."""

    reason: str = ""
    """Why it is not known; empty where it is."""
    waits_s: dict[int, float] = field(default_factory=dict)
    """Rank -> seconds of a step that it waits for the last one, by how much shorter its own work is."""
    straggler: int | None = None
    """The rank that the others wait for; None where it is no single one, or hardly any waiting."""
    late_s: float = 0.0
    """By so much its own work of a step is longer than that of the next slowest rank: what a cure gives, at most."""
    phase: str = ""
    """In which it takes longer than the others do; empty where that is their forward or nothing measured."""
    phase_s: float = 0.0
    """By so much."""
    step_s: float = 0.0
    """Mean of the ranks' steps."""

    @property
    def late_share(self) -> float:
        """`late_s` of the step, 0..1."""
        return self.late_s / self.step_s if self.step_s else 0.0

    @property
    def waiting_share(self) -> float:
        """Part of a step that a rank waits for others, mean over the ranks."""
        mean = sum(self.waits_s.values()) / len(self.waits_s) if self.waits_s else 0.0
        return mean / self.step_s if self.step_s else 0.0


def waiting(ranks: Sequence[Rank]) -> Waiting:
    """Compares the ranks of one job."""
    reason = _unjudged(ranks)
    if reason:
        return Waiting(reason)
    own = _by_devices(ranks) if ranks[0].setup.on_gpu else _by_hosts(ranks)
    if own is None:
        return Waiting("no steps of the ranks could be put side by side")
    waits, means = (own.max(axis=0) - own).mean(axis=1), own.mean(axis=1)
    next_slowest, slowest = (int(at) for at in means.argsort()[-2:])
    late, step_s = own[slowest] - own[next_slowest], float(np.mean([one.step_s or 0.0 for one in ranks]))
    late_s = float(late.mean())
    found = Waiting(waits_s={one.number: float(wait) for one, wait in zip(ranks, waits, strict=True)}, step_s=step_s)
    if late_s < max(LATE_SHARE * step_s, _by_chance_s(late)):
        return found
    phase, phase_s = _phase(ranks, slowest)
    return Waiting(
        waits_s=found.waits_s,
        straggler=ranks[slowest].number,
        late_s=late_s,
        phase=phase,
        phase_s=phase_s,
        step_s=step_s,
    )


def _unjudged(ranks: Sequence[Rank]) -> str:
    """Why who waits for whom cannot be told; empty where it can."""
    if len(ranks) < 2:
        return "fewer than two ranks left a recording"
    if min(one.steps - one.warmup_steps for one in ranks) < FEWEST_STEPS:
        return f"a rank has fewer than {FEWEST_STEPS} steps after warm-up"
    if any(one.wrapper not in (DISTRIBUTED, FULLY_SHARDED) for one in ranks):
        return "no DistributedDataParallel and no FullyShardedDataParallel was seen around the model of every rank"
    if len({one.setup.on_gpu for one in ranks}) > 1:
        return "some ranks train on a GPU and some on a CPU"
    if ranks[0].setup.on_gpu and any(one.device_own_s is None for one in ranks):
        return "the device clock of a rank was not read"
    return ""


def _by_devices(ranks: Sequence[Rank]) -> Table:
    """Own seconds of a step, one row a rank: means, as the devices' clocks were read at other steps on each rank."""
    return np.asarray([[one.device_own_s or 0.0] for one in ranks])


def _by_hosts(ranks: Sequence[Rank]) -> Table | None:
    """Own seconds of a step, one row a rank, one column for each step (or row of steps) that all ranks have."""
    works = [one.work for one in ranks if one.work is not None]
    common = reduce(np.intersect1d, [work.ends for work in works])
    common = common[common >= max(one.warmup_steps for one in ranks)]
    if len(works) < len(ranks) or len(common) < FEWEST_STEPS:
        return None
    at = [np.searchsorted(work.ends, common) for work in works]
    steps = np.diff(common)
    alone = np.asarray([np.diff(work.alone_s[rows]) for work, rows in zip(works, at, strict=True)]) / steps
    forward = np.asarray([np.diff(work.forward_s[rows]) for work, rows in zip(works, at, strict=True)]) / steps
    if not any(one.waits_in_forward for one in ranks):
        return alone + forward
    # A forward that is longer than another's by what its rank was ahead of the last one may have waited for it.
    shortest = forward.min(axis=0)
    own: Table = alone + shortest + np.maximum(forward - shortest - (alone.max(axis=0) - alone), 0.0)
    return own


def _by_chance_s(late: Table) -> float:
    """So much a rank may be late in the mean of these steps by chance, with 95 % confidence."""
    return 1.96 * float(late.std(ddof=1)) / len(late) ** 0.5 if len(late) > 1 else 0.0


def _phase(ranks: Sequence[Rank], slowest: int) -> tuple[str, float]:
    """The phase in which one rank takes longer than the others in the mean, and by how much.

    Not the backward and not the waits for the device, in which a rank waits for others too.
    """
    excess = {}
    for phase in PHASES:
        taken = [one.phases_s[phase] or 0.0 for one in ranks]
        excess[phase] = taken[slowest] - float(np.mean(np.delete(taken, slowest)))
    del excess["backward"], excess["sync"]
    phase = max(excess, key=lambda name: excess[name])
    return (phase, excess[phase]) if excess[phase] > 0.0 else ("", 0.0)
