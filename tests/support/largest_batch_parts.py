"""What the tests of the largest batch share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import torch

from gpu_doctor.recording import Recording, Settings, Timed
from gpu_doctor.trials.case import Case
from gpu_doctor.trials.run import Result
from tests.support.recordings import on_gpu

MIB, GIB = 2.0**20, 2.0**30


class Card:
    """An allocator: a fixed part and a slope, in pieces of 2 MiB, and out of memory above what there is."""

    def __init__(
        self,
        fixed_gib: float,
        per_sample_mib: float,
        total_gib: float = 80.0,
        waste_share: float = 0.0,
        least_gib: float = 0.0,
    ) -> None:
        self.fixed, self.slope, self.total = fixed_gib * GIB, per_sample_mib * MIB, total_gib * GIB
        self.least = least_gib * GIB
        """What the optimizer's step needs, whatever the batch."""
        self.waste_share = waste_share
        """Part of what is asked for that is lost in pieces that do not fit together: it counts, no peak shows it."""
        self._peak = 0.0

    def needs(self, batch: int) -> float:
        return -(-max(self.fixed + self.slope * batch, self.least) // (2 * MIB)) * 2 * MIB

    def train(self, batch: int) -> bool:
        """Whether it fits; the peak is kept."""
        needed = self.needs(batch)
        if needed * (1 + self.waste_share) > self.total:
            self._peak = self.total
            return False
        self._peak = max(self._peak, needed)
        return True

    def reset(self) -> None:
        self._peak = 0.0

    def peak_bytes(self) -> float:
        return self._peak

    def limit_bytes(self) -> float:
        return self.total


class SimulatedCase(Case):
    """A case whose code trains on the card: state is real and put back, the memory is simulated."""

    def __init__(
        self,
        card: Card,
        batch: int = 32,
        dataset_len: int = 1_000_000,
        fails_at: int = 1 << 30,
        step_ms: Callable[[int], float] = lambda batch: 10.0,
    ) -> None:
        super().__init__("pass", {"weights": torch.zeros(3), "asked": []})
        self.card, self.fails_at, self.step_ms = card, fails_at, step_ms
        self.asked: list[int] = []
        loop = on_gpu(batch=batch, steps=8, gpu_work=step_ms(batch))
        written = ahead(loop.recording(), step_ms(batch))
        loader = dataclasses.replace(written.setup.loaders[0], dataset_len=dataset_len)
        card.train(batch)
        self.recordings.append(
            dataclasses.replace(
                written, setup=dataclasses.replace(written.setup, loaders=(loader,)), peak_bytes=card.needs(batch)
            )
        )

    def once(self, settings: Settings, role: str, max_steps: int | None, max_s: float | None, text: str = "") -> Result:
        assert role == "probe"
        batch = int(settings.get("batch_size", 32))
        self.asked.append(batch)
        self.namespace["weights"] += 1.0
        loop = on_gpu(batch=batch, steps=max_steps or 4, gpu_work=self.step_ms(batch))
        done = waited_for(dataclasses.replace(loop.recording(), settings=settings), self.step_ms(batch))
        if batch >= self.fails_at:
            return Result(dataclasses.replace(done, outcome="failed", reason="ValueError: no such size"))
        if not self.card.train(batch):
            return Result(dataclasses.replace(done, outcome="out-of-memory", reason="out of memory"))
        return Result(dataclasses.replace(done, outcome="budget-reached"))


def ahead(run: Recording, step_ms: float) -> Recording:
    """A user's run whose device takes so long for a step, whatever the host's clock says."""
    since = np.full(len(run.steps), step_ms * 1e-3)
    return dataclasses.replace(
        run, steps=dataclasses.replace(run.steps, gpu_since_s=since, gpu_since_steps=np.ones(len(since)))
    )


def waited_for(trial: Recording, step_ms: float) -> Recording:
    """A side of a trial of such a device."""
    steps = trial.steps
    end_s = float(steps.start_s[-1] + steps.wall_s[-1])
    return dataclasses.replace(trial, timed=Timed(float(steps.start_s[1]), end_s, (len(steps) - 1) * step_ms * 1e-3))


def ran_out(case: SimulatedCase, role: str = "training") -> None:
    """The run as written did not fit; its peak is what there was."""
    (run,) = case.recordings
    setup = dataclasses.replace(run.setup, loaders=(dataclasses.replace(run.setup.loaders[0], role=role),))
    reason = "OutOfMemoryError: CUDA out of memory."
    case.recordings[0] = dataclasses.replace(
        run, setup=setup, outcome="out-of-memory", reason=reason, peak_bytes=0.9 * case.card.total
    )
