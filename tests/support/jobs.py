"""Ranks of a job as recordings made in memory, saved into a folder as the ranks themselves would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from gpu_doctor.recording import Losses, Recording, Setup
from gpu_doctor.recording.setup import ModelFacts, World
from tests.support.recordings import Loop

STARTED_AT: Final = 1_000.0
"""Unix time at which every rank begins."""


def rank(
    number: int,
    size: int,
    loop: Loop,
    *,
    wrapper: str = "DistributedDataParallel",
    sampler: str = "DistributedSampler",
    losses: Sequence[float] = (),
    setup: dict[str, Any] | None = None,
    **told: Any,
) -> Recording:
    """One rank's recording.

    Args:
        number: of the rank.
        size: ranks of the job.
        loop: what it does in a step, its waiting for other ranks in its backward included.
        wrapper: around its model.
        sampler: of its loader.
        losses: of its first steps; else random ones of its own.
        setup: further fields of Setup.
        told: further fields of Recording.
    """
    made = loop.but(loader={"sampler": sampler, **loop.loader}).recording()
    values = np.asarray(losses or np.random.default_rng(number).random(20), dtype=np.float64)
    at = np.arange(1.0, len(values) + 1.0)
    world = World(world_size=size, rank=number, local_size=size)
    facts: dict[str, Any] = {"world": world, "model": ModelFacts(wrapper=wrapper), "host": "node-1", "torch_threads": 1}
    told = {"started_at": STARTED_AT, **told}
    found: Setup = replace(made.setup, **{**facts, **(setup or {})})
    return replace(made, setup=found, losses=Losses(at, at * loop.batch, values), **told)


def saved(folder: Path, ranks: Sequence[Recording]) -> Path:
    """The folder, with the recordings in it."""
    for one in ranks:
        assert one.setup.world is not None
        one.save(folder / f"rank-{one.setup.world.rank:05d}.npz")
    return folder


def coupled(own: Sequence[Loop], **told: Any) -> list[Recording]:
    """Ranks whose steps all last as long as those of the slowest: the others wait in their backward."""
    last = max(one.wait + one.own_ms for one in own)
    loops = [one.but(backward=one.backward + last - one.wait - one.own_ms) for one in own]
    return [rank(number, len(own), one, **told) for number, one in enumerate(loops)]
