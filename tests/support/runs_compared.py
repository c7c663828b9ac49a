"""Runs for a comparison: at one pace, or fed from a stock."""

from __future__ import annotations

import dataclasses

import numpy as np

from gpu_doctor.recording import Fetch, LoaderSetup, Recording, Setup, Steps
from tests.support.recordings import Loop


def run(step_s: float = 0.01, n: int = 50, *, jitter: float = 0.05, seed: int = 0, samples: float = 32.0) -> Recording:
    half = step_s * 500.0
    loop = Loop(steps=n, wait=half, forward=half, backward=0.0, optimizer=0.0, first=20.0, jitter=jitter, seed=seed)
    return loop.but(batch=samples, facts={"outcome": "budget-reached"}).recording()


WORKERS = 4
LOADER = LoaderSetup(key="loader", role="training", num_workers=WORKERS)


def fed(ready: list[float], wall_s: list[float] | None = None, workers: int = WORKERS) -> Recording:
    """A run of a step a batch, before each of which so many batches lay ready."""
    n = len(ready)
    steps = Steps.of(wall_s=wall_s or [0.01] * n, samples=np.full(n, 32.0), batches=np.ones(n))
    fetch = Fetch(
        "loader", workers, n, 1.0, 1.0, 0.0, 8.0, np.ones(1), ready=np.array(ready), ready_after=np.arange(float(n))
    )
    loader = dataclasses.replace(LOADER, num_workers=workers)
    return Recording(steps, outcome="budget-reached", duration_s=1.0, setup=Setup(loaders=(loader,)), fetches=(fetch,))
