"""Finds which rank the others wait for, by comparing the ranks' steps of the same number.

Ranks that train one model average their gradients in each backward, so all of their steps take equally long and a slow
rank looks like the others. They differ in their own work: everything a rank does before it synchronises with the others
in the backward. The others wait for the rank whose own work takes longest.
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
"""Smallest part of a step by which a straggler is late: a diagnosis also ranks losses of 10 % or more first. Ranks that
did the same work on two busy cores differed by 8 %."""


@dataclass(frozen=True)
class Waiting:
    """How long the ranks wait for each other, and for which rank."""

    reason: str = ""
    """Reason why this is unknown; empty if it is known."""
    waits_s: dict[int, float] = field(default_factory=dict)
    """Rank -> seconds per step that it waits for the slowest rank: the difference of their own work."""
    straggler: int | None = None
    """Rank that the others wait for; None if it is no single rank, or if they hardly wait."""
    late_s: float = 0.0
    """Seconds per step by which the straggler's own work exceeds the next slowest rank's: the most a cure can give."""
    phase: str = ""
    """Phase in which the straggler exceeds the others most; empty if there is none."""
    phase_s: float = 0.0
    """Seconds per step by which it exceeds them in that phase."""
    step_s: float = 0.0
    """Mean step time of the ranks, in seconds."""

    @property
    def late_share(self) -> float:
        """`late_s` as a part of the step, 0 to 1."""
        return self.late_s / self.step_s if self.step_s else 0.0

    @property
    def waiting_share(self) -> float:
        """Part of a step that a rank waits for others, 0 to 1, as a mean over the ranks."""
        mean = sum(self.waits_s.values()) / len(self.waits_s) if self.waits_s else 0.0
        return mean / self.step_s if self.step_s else 0.0


def waiting(ranks: Sequence[Rank]) -> Waiting:
    """Compares the ranks of one job and finds the straggler."""
    reason = _why_no_verdict(ranks)
    if reason:
        return Waiting(reason)
    own = _by_devices(ranks) if ranks[0].setup.on_gpu else _by_hosts(ranks)
    if own is None:
        return Waiting("no steps of the ranks could be put side by side")
    waits, means = (own.max(axis=0) - own).mean(axis=1), own.mean(axis=1)
    next_slowest, slowest = (int(at) for at in means.argsort()[-2:])
    late, step_s = own[slowest] - own[next_slowest], float(np.mean([rank.step_s or 0.0 for rank in ranks]))
    late_s = float(late.mean())
    found = Waiting(waits_s={rank.number: float(wait) for rank, wait in zip(ranks, waits, strict=True)}, step_s=step_s)
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


def _why_no_verdict(ranks: Sequence[Rank]) -> str:
    """Returns the reason why the ranks cannot be compared, or '' if they can."""
    if len(ranks) < 2:
        return "fewer than two ranks left a recording"
    if min(rank.steps - rank.warmup_steps for rank in ranks) < FEWEST_STEPS:
        return f"a rank has fewer than {FEWEST_STEPS} steps after warm-up"
    if any(rank.wrapper not in (DISTRIBUTED, FULLY_SHARDED) for rank in ranks):
        return "no DistributedDataParallel and no FullyShardedDataParallel was seen around the model of every rank"
    if len({rank.setup.on_gpu for rank in ranks}) > 1:
        return "some ranks train on a GPU and some on a CPU"
    if ranks[0].setup.on_gpu and any(rank.device_own_s is None for rank in ranks):
        return "the device clock of a rank was not read"
    return ""


def _by_devices(ranks: Sequence[Rank]) -> Table:
    """Returns the own seconds per step, one row per rank and one column.

    They are means, because each rank read its device's clock in different steps.
    """
    return np.asarray([[rank.device_own_s or 0.0] for rank in ranks])


def _by_hosts(ranks: Sequence[Rank]) -> Table | None:
    """Returns the own seconds per step, one row per rank, one column per step (or row of steps) that all ranks have.

    None if they have too few steps in common.
    """
    works = [rank.work for rank in ranks if rank.work is not None]
    common = reduce(np.intersect1d, [work.ends for work in works])
    common = common[common >= max(rank.warmup_steps for rank in ranks)]
    if len(works) < len(ranks) or len(common) < FEWEST_STEPS:
        return None
    at = [np.searchsorted(work.ends, common) for work in works]
    steps = np.diff(common)
    alone = np.asarray([np.diff(work.alone_s[rows]) for work, rows in zip(works, at, strict=True)]) / steps
    forward = np.asarray([np.diff(work.forward_s[rows]) for work, rows in zip(works, at, strict=True)]) / steps
    if not any(rank.waits_in_forward for rank in ranks):
        return alone + forward
    # A forward may have waited for the slowest rank, by up to the lead that its own rank had.
    shortest = forward.min(axis=0)
    own: Table = alone + shortest + np.maximum(forward - shortest - (alone.max(axis=0) - alone), 0.0)
    return own


def _by_chance_s(late: Table) -> float:
    """Returns the mean lateness, in seconds per step, that chance explains with 95 % confidence."""
    return 1.96 * float(late.std(ddof=1)) / len(late) ** 0.5 if len(late) > 1 else 0.0


def _phase(ranks: Sequence[Rank], slowest: int) -> tuple[str, float]:
    """Returns the phase in which one rank exceeds the mean of the others most, and the excess in seconds per step.

    Backward and sync are left out, because a rank also waits for others in them.

    Args:
        ranks: ranks of the job.
        slowest: index of the rank that is compared with the others.
    """
    excess = {}
    for phase in PHASES:
        taken = [rank.phases_s[phase] or 0.0 for rank in ranks]
        excess[phase] = taken[slowest] - float(np.mean(np.delete(taken, slowest)))
    del excess["backward"], excess["sync"]
    phase = max(excess, key=lambda name: excess[name])
    return (phase, excess[phase]) if excess[phase] > 0.0 else ("", 0.0)
