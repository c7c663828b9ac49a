"""What timed loops are made of: a hand-placed stopwatch, and parts that take known time.

Work is slept by `nap`, so that the truth has two sides on a machine however busy: a phase lasted at least as long as
what was slept inside of it, and at most as long as the lap by hand around it. No tolerance is needed.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from gpu_doctor.recording import PHASES, Recording

ITEM_S, FORWARD_S, BACKWARD_S, OPTIMIZER_S, OTHER_S = 0.0003, 0.002, 0.002, 0.004, 0.006
BATCH = 6
ROUNDING_S = 1e-6
"""Columns hold seconds as sums of nanoseconds; a sum over a hundred rows is rounded by less than this."""

_slept = threading.local()


def nap(seconds: float) -> None:
    """Sleeps, and adds what it took to `slept_s()`."""
    begin = time.perf_counter()
    time.sleep(seconds)
    _slept.seconds = slept_s() + time.perf_counter() - begin


def slept_s() -> float:
    """Seconds that this thread has slept by `nap`."""
    seconds: float = getattr(_slept, "seconds", 0.0)
    return seconds


@dataclass(frozen=True)
class Done:
    """A step as it was: its samples, the pass over the data in which it ended, and whether it was a training step."""

    samples: int
    epoch: int
    trained: bool


class Truth:
    """What really happened, counted in the loop itself and independent of anything that listens."""

    def __init__(self) -> None:
        self.done: list[Done] = []
        """Every step, oldest first."""
        self.epoch = 0
        """Which pass the loop is in over what it steps on, be it to train or not."""
        self.roles: list[tuple[str, int | None]] = []
        """Of each loader what it is for, and the samples that its dataset has."""
        self.copies = self.copied_bytes = self.waits = 0
        """To a device, outside of evaluations; and how often the loop waited for it there."""
        self.batches = 0
        """Taken from loaders for the loop itself,"""
        self.evaluated = self.passes = 0
        """and for its evaluation passes, and how many of these there were."""
        self.seconds: defaultdict[str, float] = defaultdict(float)
        """Of each phase, by the laps around it: it took no longer."""
        self.slept: defaultdict[str, float] = defaultdict(float)
        """Of each phase, what was slept inside of it: it took no less."""
        self.first_s: float | None = None
        """From the start to the end of the first wait or forward: the loop's first event lies before that."""
        self.whole_s = 0.0
        """From the start to where nothing listened any more: no run lasted longer."""
        self.namespace: dict[str, Any] = {}
        """Where the loop's names live, as a cell's do in its notebook."""
        self._open: defaultdict[str, float] = defaultdict(float)
        self._open_slept: defaultdict[str, float] = defaultdict(float)
        self._begin = self._mark = self._slept_mark = 0.0

    def start(self) -> None:
        """The loop begins now."""
        self._begin = self._mark = time.perf_counter()
        self._slept_mark = slept_s()

    def end(self) -> None:
        """Nothing listens any more."""
        self.whole_s = time.perf_counter() - self._begin

    def lap(self, phase: str) -> None:
        """What ran since the last lap was `phase`. It counts once a step or an evaluation has ended after it."""
        now, slept = time.perf_counter(), slept_s()
        if self.first_s is None and phase in ("data_wait", "forward"):
            self.first_s = now - self._begin
        self._open[phase] += now - self._mark
        self._open_slept[phase] += slept - self._slept_mark
        self._mark, self._slept_mark = now, slept
        if phase == "evaluation":
            self._keep()

    def got(self, batches: int = 1) -> None:
        """The wait for a batch is over (or for one of each loader, where there are several)."""
        self.lap("data_wait")
        self.batches += batches

    def copied(self, *tensors: torch.Tensor) -> None:
        """They were copied to a device."""
        self.lap("transfer")
        self.copies += len(tensors)
        self.copied_bytes += sum(one.numel() * one.element_size() for one in tensors)

    def waited(self) -> None:
        """A value was waited for."""
        self.lap("sync")
        self.waits += 1

    def step(self, samples: int, trained: bool = True) -> None:
        """A step has ended, on so many samples; `trained`: something was learned by it."""
        self.done.append(Done(samples, self.epoch, trained))
        self._keep()

    def epochs(self, n: int) -> Iterator[int]:
        """So many passes."""
        for number in range(n):
            self.epoch += number > 0
            yield number

    def loads(self, role: str, data: Any) -> Any:
        """A loader over `data` is for this: `training`, `evaluation`, or `unknown` (nothing tells it)."""
        self.roles.append((role, getattr(data, "n", None)))
        return data

    @property
    def steps(self) -> int:
        """Steps that have ended."""
        return len(self.done)

    @property
    def samples(self) -> int:
        """Of all steps."""
        return sum(one.samples for one in self.done)

    def _keep(self) -> None:
        for phase, seconds in self._open.items():
            self.seconds[phase] += seconds
        for phase, seconds in self._open_slept.items():
            self.slept[phase] += seconds
        self._open.clear()
        self._open_slept.clear()

    @property
    def wall_s(self) -> float:
        """Seconds from the start to the end of the last step or evaluation."""
        return sum(self.seconds.values())


@dataclass(frozen=True)
class TimedLoop:
    """A timed loop, and what it has."""

    run: Callable[[Truth], None]
    on_device: bool = False
    """It copies to a device and waits for it: it runs under `SimulatedCuda`."""
    pulls_ahead: bool = False
    """It pulls a step's batch while the step before is open: the batch's samples are counted there."""
    read_by_thread: bool = False
    """A thread of its own pulls its batches: how many are recorded before the first step is left to chance."""


class Timed(dict[str, TimedLoop]):
    """Timed loops by name."""

    def add(self, name: str, *has: str, **options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Enters the decorated loop under a name.

        Args:
            has: fields of `TimedLoop` that are True of it.
            options: further arguments that the loop is called with.
        """

        def enter(loop: Callable[..., None]) -> Callable[..., None]:
            self[name] = TimedLoop(functools.partial(loop, **options), **dict.fromkeys(has, True))
            return loop

        return enter


def outside(truth: Truth, recording: Recording) -> dict[str, tuple[float, float, float]]:
    """Phase -> the least that it took, seconds recorded, and the most, where what was recorded is not between them.

    These are laws, not tolerances: what was slept inside of a phase is part of it, and a lap by hand around it holds
    all of it, however busy the machine is. `other` has no timers of its own: it is what is left of the wall. An
    evaluation ends where the training's next event begins, which is inside of that one's lap.
    """
    told = {phase: float(np.nansum(getattr(recording.steps, f"{phase}_s"))) for phase in (*PHASES, "other")}
    bounds = {phase: (truth.slept[phase], truth.seconds[phase]) for phase in PHASES}
    unheard_s = sum(truth.seconds[phase] - told[phase] for phase in PHASES)
    before_events_s = sum(truth.seconds[phase] - told[phase] for phase in ("forward", "optimizer"))
    bounds["evaluation"] = truth.slept["evaluation"], truth.seconds["evaluation"] + max(before_events_s, 0.0)
    tail_s = truth.whole_s - truth.wall_s
    bounds["other"] = truth.slept["other"], truth.seconds["other"] + unheard_s + tail_s
    bounds["wall"] = truth.wall_s - (truth.first_s or truth.wall_s), truth.whole_s
    told["wall"] = float(recording.steps.wall_s.sum())
    return {
        phase: (least, told[phase], most)
        for phase, (least, most) in bounds.items()
        if not least - ROUNDING_S <= told[phase] <= most + ROUNDING_S
    }


class Items(Dataset[Any]):
    """`n` samples of 4 features, each slept for."""

    def __init__(self, n: int, item_s: float = ITEM_S) -> None:
        self.n, self.item_s = n, item_s

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        nap(self.item_s)
        return torch.full((4,), index / self.n), torch.tensor(index % 2)


class Stream(IterableDataset[Any]):
    """The same samples without an index or a length."""

    def __init__(self, n: int) -> None:
        self.items = Items(n)

    def __iter__(self) -> Iterator[Any]:
        return (self.items[i] for i in range(self.items.n))


class Nap(torch.autograd.Function):
    """Sleeps in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        nap(BACKWARD_S)
        return grads[0]


class Net(nn.Module):
    """A linear layer whose forward and backward are slept for."""

    def __init__(self, inputs: int = 4, outputs: int = 2) -> None:
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        nap(FORWARD_S)
        out: torch.Tensor = self.layer(x)
        apply: Any = Nap.apply
        return apply(out) if torch.is_grad_enabled() else out


class SlowSGD(torch.optim.SGD):
    """SGD whose step is slept for."""

    def step(self, closure: Any = None) -> Any:
        nap(OPTIMIZER_S)
        return super().step(closure)


def warm_up() -> None:
    """Has torch import and set up what it does lazily at a first step (about 1 ms to 1 s that no loop should pay)."""
    model = Net()
    optimizer = SlowSGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.rand(2, 4)).sum().backward()
        optimizer.step()


def loader(t: Truth, n: int = 30, role: str = "training", **options: Any) -> DataLoader[Any]:
    """`n` samples in batches of BATCH."""
    return DataLoader(t.loads(role, Items(n)), **{"batch_size": BATCH, **options})


def net(t: Truth, name: str = "model", **sizes: int) -> Net:
    """A model under a name in the loop's namespace."""
    made = t.namespace[name] = Net(**sizes)
    return made


def sgd(*models: nn.Module) -> SlowSGD:
    """An optimizer over the models' parameters."""
    return SlowSGD([p for model in models for p in model.parameters()], lr=0.01)


def begun(t: Truth, n: int = 30, **options: Any) -> tuple[Net, SlowSGD, DataLoader[Any]]:
    """Starts a loop over `n` samples that trains one model; returns the model, its optimizer and its loader."""
    model = net(t)
    optimizer, batches = sgd(model), loader(t, n, **options)
    t.start()
    return model, optimizer, batches


def loss_of(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A loss that takes known time outside of every measured phase."""
    nap(OTHER_S)
    return nn.functional.cross_entropy(out, y)


def backed(t: Truth, model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Forward, loss and backward of a batch that was lapped already; the output and the loss."""
    out = model(x)
    t.lap("forward")
    loss = loss_of(out, y)
    t.lap("other")
    loss.backward()
    t.lap("backward")
    return out, loss


def updated(t: Truth, optimizer: torch.optim.Optimizer) -> None:
    """The optimizer steps, and the gradients are set to zero."""
    optimizer.step()
    optimizer.zero_grad()
    t.lap("optimizer")


def learn(t: Truth, model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> None:
    """One plain training step on a batch that was lapped already."""
    optimizer.zero_grad()
    t.lap("optimizer")
    backed(t, model, x, y)
    optimizer.step()
    t.lap("optimizer")
    t.step(len(x))


def learn_all(t: Truth, model: nn.Module, optimizer: torch.optim.Optimizer, batches: Any, epochs: int = 2) -> None:
    """Plain training steps over so many epochs."""
    for _ in t.epochs(epochs):
        for x, y in batches:
            t.got()
            learn(t, model, optimizer, x, y)


def given_back(t: Truth) -> None:
    """The loop let go of a batch from a worker: its shared memory is unmapped then, in the loop's own time (0.8 ms)."""
    t.lap("other")


def evaluate(t: Truth, model: nn.Module, batches: Any, switch_mode: bool = True, no_grad: bool = True) -> None:
    """An evaluation pass; what came before it in this step must be lapped already."""
    was = model.training
    t.passes += 1
    if switch_mode:
        model.eval()
    with torch.set_grad_enabled(torch.is_grad_enabled() and not no_grad):
        for x, y in batches:
            t.evaluated += 1
            loss_of(model(x), y)
    model.train(was)
    t.lap("evaluation")
