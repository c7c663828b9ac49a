"""Training loops of known physics, played event by event: loader workers, shared cores, epochs, an optimizer.

A `World` knows nothing of our forecast: workers wait and compute, each batch in order, cores are shared out evenly.
What it leaves behind is a recording as a real run's, with noise. `rate()` is the truth, without.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from gpu_doctor.recording import Fetch, Recording, Settings, SettingValue
from gpu_doctor.recording import Steps as StepRows
from gpu_doctor.recording.setup import OptimizerFacts
from gpu_doctor.trials.case import Case
from gpu_doctor.trials.run import Result
from gpu_doctor.trials.written import Written, not_written
from tests.support.recordings import KEY, Loop

FAR = 1e18
BATCH = 32
"""As written."""
PACKS = 0.4
"""Ms of a worker for handing a batch over, which no fetch is billed for."""


@dataclass(frozen=True)
class World:
    """What a loop's parts take, in ms on a core of its own."""

    waits: float = 0.0
    """Of a batch's fetch: waiting for a server."""
    computes: float = 0.5
    """Of a batch's fetch: computing."""
    trains: float = 2.0
    """Forward and backward."""
    updates: float = 0.5
    """The optimizer, not fused."""
    fused_gain: float = 3.0
    fixed: float = 0.0
    """Part of `trains` that takes as long for any batch."""
    parallel: float = 0.0
    """Part of `trains` that more threads share."""
    forks: float = 0.3
    """What starting parallel regions takes in a step, with more than one thread."""
    slow_every: int = 0
    slow: float = 0.0
    """Every so many batches one waits for so long."""
    epoch: int = 1000
    """Batches."""
    cores: float = 2.0
    start: float = 20.0
    start_each: float = 15.0
    hands_over: float = 0.6
    noise: float = 0.05
    layers: int = 6
    written: Settings = field(default_factory=dict)
    """The settings of the code as written."""

    def all_of(self, settings: Settings) -> dict[str, Any]:
        """Every setting."""
        plain: dict[str, Any] = {
            "num_workers": 0,
            "batch_size": BATCH,
            "persistent_workers": False,
            "prefetch_factor": 2,
            "fused_optimizer": False,
            "threads": 1,
        }
        return {**plain, **self.written, **settings}

    def of_batch(self, size: int) -> World:
        """The same loop with another batch."""
        times = size / BATCH
        return dataclasses.replace(
            self,
            waits=self.waits * times,
            slow=self.slow * times,
            computes=self.computes * times,
            trains=self.trains * (self.fixed + (1.0 - self.fixed) * times),
            epoch=round(self.epoch / times),
        )

    def rate(self, settings: Settings, steps: int = 240) -> float:
        """Samples/s in the long run, without noise."""
        full = self.all_of(settings)
        played = play(dataclasses.replace(self, noise=0.0), full, steps, np.random.default_rng(0))
        late = steps // 4
        return float(full["batch_size"] * (steps - late) / played.wall[late:].sum())


@dataclass
class Played:
    """A run in columns, seconds."""

    wall: Any
    wait: Any
    edge: Any
    own: Any
    update: Any
    fetches: list[float]
    cpu_s: float


def play(world: World, settings: dict[str, Any], steps: int, rng: np.random.Generator) -> Played:
    """Runs a world for so many steps under all of its settings."""
    world = world.of_batch(int(settings["batch_size"]))
    now, epoch_from = 0.0, 0
    mood = float(np.exp(rng.normal(0, world.noise / 5))) if world.noise else 1.0
    rows: list[tuple[float, float, float, float, float]] = []
    fetches: list[float] = []
    workers = int(settings["num_workers"])
    pool: _Pool | None = None
    for step in range(steps):
        begin, edge = now, 0.0
        first = (step - epoch_from) % world.epoch == 0
        own, update = (one * mood * _noisy(world, rng) for one in _training_ms(world, settings))
        if not workers:
            wait = (_fetch_wait(world, step) + world.computes) * mood * _noisy(world, rng)
            fetches.append(wait)
            now += wait
        else:
            if pool is None or (first and not settings["persistent_workers"]):
                pool = _Pool(world, workers, int(settings["prefetch_factor"]), now, step, rng)
            elif first:
                pool.limit = step + world.epoch
            now = pool.batch(step, now) + world.hands_over
            wait = now - begin
            edge = wait if first and step else 0.0
        now = now + own + update if pool is None else pool.training(now, own + update)
        total = now - begin - wait
        rows.append((now - begin, wait, edge, total * own / (own + update), total * update / (own + update)))
    if pool is not None:
        fetches = pool.fetches
    wall, wait_, edge_, own_, update_ = (np.asarray(column) * 1e-3 for column in zip(*rows, strict=True))
    return Played(wall, wait_, edge_, own_, update_, fetches, world.computes * 1e-3)


def _noisy(world: World, rng: np.random.Generator) -> float:
    return float(np.exp(rng.normal(0, world.noise))) if world.noise else 1.0


def _fetch_wait(world: World, batch: int) -> float:
    return world.slow if world.slow_every and batch % world.slow_every == world.slow_every - 1 else world.waits


def _training_ms(world: World, settings: dict[str, Any]) -> tuple[float, float]:
    threads = int(settings["threads"])
    useful = min(threads, world.cores)
    crowd = max(threads / world.cores, 1.0)
    own = world.trains * (1 - world.parallel + world.parallel / useful) * crowd + (world.forks if threads > 1 else 0.0)
    return own, world.updates / (world.fused_gain if settings["fused_optimizer"] else 1.0)


def _adam(world: World, fused: bool) -> OptimizerFacts:
    """An Adam of such a size that it takes on a CPU what it takes here (25 us a tensor, 3 ns an element)."""
    tensors = 2 * world.layers
    elements = max(int((world.updates * 1e-3 - 2.5e-5 * tensors) / 3e-9), tensors)
    return OptimizerFacts("Adam", tensors, elements, foreach=False, fused=fused, can_fuse=not fused)


class _Pool:
    """Worker processes that fetch in turn and in order; those that compute share the cores with the training."""

    def __init__(
        self, world: World, workers: int, prefetch: int, now: float, batch: int, rng: np.random.Generator
    ) -> None:
        self.world, self.rng, self.now = world, rng, now
        self.limit = batch + world.epoch
        self.ahead = workers * prefetch
        self.taken = batch
        self.begun = [now + world.start + world.start_each * (n + 1) for n in range(workers)]
        self.next = [batch + n for n in range(workers)]
        self.waiting = [0.0] * workers
        self.computing = [0.0] * workers
        self.busy = [False] * workers
        self.since = [0.0] * workers
        self.done: set[int] = set()
        self.fetches: list[float] = []

    def batch(self, number: int, now: float) -> float:
        """When the loop has this batch."""
        self.taken = number
        self._advance(now, 0.0)
        while number not in self.done:
            self._step(FAR, 0.0)
        self.done.discard(number)
        self.taken = number + 1
        return max(self.now, now)

    def training(self, now: float, ms: float) -> float:
        """When so much computing of the training process is done, beside the workers."""
        self._advance(now, 0.0)
        left = ms
        while left > 1e-9:
            left -= self._step(FAR, left)
        return self.now

    def _advance(self, until: float, training: float) -> None:
        while self.now < until - 1e-9:
            self._step(until, training)

    def _step(self, until: float, training: float) -> float:
        """One event; returns the CPU milliseconds that the training got."""
        for n in range(len(self.next)):
            open_ = self.next[n] < min(self.taken + self.ahead, self.limit)
            if not self.busy[n] and open_ and self.begun[n] <= self.now + 1e-9:
                self.busy[n], self.since[n] = True, self.now
                self.waiting[n] = _fetch_wait(self.world, self.next[n]) * _noisy(self.world, self.rng)
                self.computing[n] = (self.world.computes + PACKS) * _noisy(self.world, self.rng)
        at_work = [n for n in range(len(self.next)) if self.busy[n] and self.waiting[n] <= 0]
        asleep = [n for n in range(len(self.next)) if self.busy[n] and self.waiting[n] > 0]
        share = min(1.0, self.world.cores / max(len(at_work) + (training > 0), 1))
        ends = [until - self.now] + [self.waiting[n] for n in asleep] + [self.computing[n] / share for n in at_work]
        ends += [one - self.now for n, one in enumerate(self.begun) if one > self.now + 1e-9]
        if training > 0:
            ends.append(training / share)
        passed = max(min(ends), 1e-6)
        self.now += passed
        for n in asleep:
            self.waiting[n] -= passed
            if self.waiting[n] < 1e-9:
                self.waiting[n] = 0.0
        for n in at_work:
            self.computing[n] -= passed * share
            if self.computing[n] <= 1e-9:
                self.busy[n] = False
                self.done.add(self.next[n])
                self.next[n] += len(self.next)
                self.fetches.append(max(self.now - self.since[n] - PACKS, self.world.computes))
        return passed * share if training > 0 else 0.0


class WorldCase(Case):
    """A case whose code trains in a world: state is real and put back, time is the world's."""

    def __init__(self, world: World, seed: int = 0) -> None:
        super().__init__("pass", {"weights": torch.zeros(3)})
        self.world, self.rng = world, np.random.default_rng(seed)
        self.asked: list[dict[str, SettingValue]] = []

    def written(self, settings: Settings) -> Written:
        return not_written(settings, "A world has no text.", "")

    def unturnable(self, settings: Settings) -> str:
        return ""

    def once(self, settings: Settings, role: str, max_steps: int | None, max_s: float | None) -> Result:
        self.namespace["weights"] += 1.0
        if role == "candidate":
            self.asked.append(dict(settings))
        return Result(recorded(self.world, settings, max_steps or 100, self.rng))


def recorded(world: World, settings: Settings, steps: int, rng: np.random.Generator) -> Recording:
    """What a run in a world leaves behind."""
    full = world.all_of(settings)
    played = play(world, full, steps, rng)
    world = world.of_batch(int(full["batch_size"]))
    workers = int(full["num_workers"])
    loop = Loop(
        steps=steps,
        batch=int(full["batch_size"]),
        workers=workers,
        steps_per_epoch=world.epoch,
        cores=world.cores,
        settings=dict(settings),
        loader={"persistent_workers": full["persistent_workers"], "prefetch_factor": full["prefetch_factor"]}
        if workers
        else {},
        setup={
            "torch_threads": full["threads"],
            "layers": {"Linear": world.layers},
            "optimizer_facts": (_adam(world, bool(full["fused_optimizer"])),),
        },
        cpu_util=50.0,
    )
    made = loop.recording()
    n = max(len(played.fetches), 1)
    walls = np.asarray(played.fetches or [0.0]) * 1e-3
    cpu = world.computes * 1e-3
    fetch = Fetch(KEY, workers, n, float(walls.sum()), n * cpu, 1e-4 * n, 1e5, walls[-60:], queued_s=0.0)
    own = played.own
    rows = StepRows.of(
        wall_s=played.wall,
        data_wait_s=played.wait,
        edge_s=played.edge,
        forward_s=0.4 * own,
        backward_s=0.6 * own,
        optimizer_s=played.update,
        cpu_s=own + played.update + (0.0 if workers else cpu),
        samples=np.full(steps, float(full["batch_size"])),
        batches=np.ones(steps),
        epoch=np.arange(steps) // world.epoch,
    )
    return dataclasses.replace(
        made, steps=rows, fetches=(fetch,), outcome="budget-reached", duration_s=float(played.wall.sum())
    )


SLOW_SERVER = World(waits=30, computes=1.0, trains=2.0, epoch=60)
DECODING = World(computes=4, trains=2, updates=3)

WORLDS = {
    "a slow server": SLOW_SERVER,
    "a slow server and two workers": World(waits=64, trains=1.5, epoch=50, written={"num_workers": 2}),
    "decoding": World(computes=6, trains=5, epoch=70),
    "decoding for a cheap model": World(computes=8, trains=1, epoch=75),
    "decoding and an optimizer": DECODING,
    "short epochs": World(computes=0.3, trains=1, epoch=10, written={"num_workers": 2}),
    "one slow batch in fifteen": World(waits=4, slow_every=15, slow=240, trains=18, written={"num_workers": 2}),
    "an optimizer": World(computes=0.1, updates=2),
    "sixteen threads": World(computes=0.1, trains=8, updates=0.3, parallel=0.9, written={"threads": 16}),
    "one thread for a large model": World(computes=0.1, trains=12, updates=0.3, parallel=0.9),
    "sixteen workers": World(computes=6, trains=0.5, written={"num_workers": 16}),
    "a slow store on eight cores": World(waits=90, computes=2, trains=6, epoch=120, cores=8),
    "decoding on eight cores": World(computes=40, trains=8, epoch=120, cores=8, parallel=0.5),
}


def case_of(world: World, seed: int = 0) -> WorldCase:
    case = WorldCase(world, seed)
    steps = 2 * world.epoch + 20 if world.epoch < 500 else 100  # a run goes through its epochs, a long one is stopped
    case.recordings.append(recorded(world, {}, steps, case.rng))
    return case
