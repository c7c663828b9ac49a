"""Training loops on a simulated GPU, heard by the real taps, beside the truth of the device's own timeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from gpu_doctor.capture.taps import listening
from gpu_doctor.recording import Recording
from tests.support.device_truth import Spans, common, length, united, without
from tests.support.simulated_cuda import BYTES_PER_MS, SimulatedCuda
from tests.support.simulated_device import SimulatedDevice

STEPS: Final = 60
WARM: Final = 5
BATCH: Final = 8
WIDTH: Final = 64 * 1024
"""Floats of a sample: a batch is 2 MB."""


@dataclass
class World:
    """What a loop has: a device, a model, a loader."""

    cuda: SimulatedCuda
    fetch_ms: float
    """Of a batch,"""
    after_ms: float = 0.0
    """and what the device is given at the end of a fetch: the loader computes on it."""
    kernels: int = 10
    """Of the forward, each half a millisecond long; the backward has as many."""
    kernel_ms: float = 0.5
    cost_ms: float = 0.01
    steps: int = STEPS
    new_sizes: int = 0
    """The forward needs memory of so many sizes that the allocator has not met yet."""
    bytes_per_ms: float = BYTES_PER_MS
    """Of a copy from pinned memory."""
    net: nn.Module = field(init=False)
    optimizer: torch.optim.Optimizer = field(init=False)

    def __post_init__(self) -> None:
        self.cuda.bytes_per_ms = self.bytes_per_ms
        self.net = Net(self).to("cuda")
        self.optimizer = Descent(self)

    @property
    def device(self) -> SimulatedDevice:
        """That computes."""
        return self.cuda.device

    def loader(self, batches: int | None = None) -> DataLoader[Any]:
        """As many batches as its loops have steps, or another number, fetched in this process."""
        return DataLoader(Rows(self, self.steps if batches is None else batches), batch_size=None)

    def learn(self, x: torch.Tensor, scale: Callable[[torch.Tensor], torch.Tensor] = lambda loss: loss) -> torch.Tensor:
        """Forward, loss and backward."""
        loss: torch.Tensor = self.net(x).mean()
        scale(loss).backward()
        return loss

    def gpu(self, ms: float, kernels: int = 1, kind: str = "between") -> None:
        """The loop computes on the device."""
        self.cuda.launch(ms, kernels, kind)


class Rows(Dataset[torch.Tensor]):
    """Whole batches, each of which takes the host its time."""

    def __init__(self, world: World, batches: int) -> None:
        self._world, self._batches = world, batches
        self._batch = torch.zeros(BATCH, WIDTH)

    def __len__(self) -> int:
        return self._batches

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= self._batches:
            raise IndexError
        self._world.device.fetch(self._world.fetch_ms)
        if self._world.after_ms:
            self._world.gpu(self._world.after_ms, 1, "loader")
        return self._batch


class Net(nn.Module):
    """As many kernels as its world says."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = [world]  # which is no part of the module
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        world = self._world[0]
        parts = max(world.new_sizes, 1)
        for _ in range(parts):
            world.cuda.launch(world.kernel_ms, world.kernels // parts, "forward", world.cost_ms)
            if world.new_sizes:
                world.device.allocate(len(world.device.sizes))
        world.cuda.pending.append((world.kernel_ms, world.kernels, world.cost_ms))
        return x[:, :4] * self.weight


class Descent(torch.optim.SGD):
    """An optimizer with two kernels."""

    def __init__(self, world: World) -> None:
        super().__init__(world.net.parameters(), lr=0.01)
        self._world = world

    def step(self, closure: Any = None) -> Any:
        self._world.gpu(0.2, 2, "optimizer")
        return super().step(closure)


# ---- loops ----------------------------------------------------------------------------------------------------------


def plain(world: World) -> None:
    """A step a batch."""
    for x in world.loader():
        world.optimizer.zero_grad()
        world.learn(x.to("cuda"))
        world.optimizer.step()


def accumulating(micro: int) -> Callable[[World], None]:
    """A step so many batches."""

    def loop(world: World) -> None:
        for i, x in enumerate(world.loader(), 1):
            world.learn(x.to("cuda"))
            if i % micro == 0:
                world.optimizer.step()
                world.optimizer.zero_grad()

    return loop


def reading(every: int) -> Callable[[World], None]:
    """The loss is read each so many steps."""

    def loop(world: World) -> None:
        for i, x in enumerate(world.loader()):
            world.optimizer.zero_grad()
            loss = world.learn(x.to("cuda"))
            world.optimizer.step()
            if i % every == 0:
                loss.item()

    return loop


def normalising(world: World) -> None:
    """Batches are normalised and mixed on the device before the forward."""
    for x in world.loader():
        x = x.to("cuda")
        world.gpu(0.4, 5)
        world.optimizer.zero_grad()
        world.learn(x)
        world.optimizer.step()


def averaging(world: World) -> None:
    """An average of the weights, and a metric, are computed on the device after the step; the loss is read."""
    for x in world.loader():
        world.optimizer.zero_grad()
        loss = world.learn(x.to("cuda"))
        world.optimizer.step()
        loss.item()
        world.gpu(0.5, 6)


def hidden(world: World) -> None:
    """`next` is called by the loop, and then NumPy works on the batch."""
    iterator = iter(world.loader())
    for _ in range(world.steps):
        x = next(iterator)
        world.device.host(5.0)
        world.optimizer.zero_grad()
        world.learn(x.to("cuda"))
        world.optimizer.step()


class WithLoss(nn.Module):
    """A model that returns its loss."""

    def __init__(self, net: nn.Module, world: World) -> None:
        super().__init__()
        self.net, self._world = net, [world]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.net(x).mean()
        self._world[0].gpu(0.5, 2, "loss")
        return found


def within(world: World) -> None:
    """The loss is computed in the forward."""
    model = WithLoss(world.net, world)
    for x in world.loader():
        world.optimizer.zero_grad()
        model(x.to("cuda")).backward()
        world.optimizer.step()


def prefetching(world: World) -> None:
    """The next batch is fetched and copied on a stream of its own, as NVIDIA's examples do."""
    side, iterator = torch.cuda.Stream(), iter(world.loader())

    def preload() -> torch.Tensor | None:
        try:
            x: torch.Tensor = next(iterator)
        except StopIteration:
            return None
        with torch.cuda.stream(side):
            return x.pin_memory().to("cuda", non_blocking=True)

    x = preload()
    while x is not None:
        torch.cuda.current_stream().wait_stream(side)
        now, x = x, preload()
        world.optimizer.zero_grad()
        world.learn(now)
        world.optimizer.step()


def scaling(world: World) -> None:
    """A GradScaler, which asks whether gradients are finite."""
    scaler = torch.amp.GradScaler("cuda")
    for x in world.loader():
        world.optimizer.zero_grad()
        world.learn(x.to("cuda"), scaler.scale)
        world.gpu(0.2, 2)
        scaler.step(world.optimizer)
        scaler.update()


def clipping(world: World) -> None:
    """Gradients are clipped."""
    for x in world.loader():
        world.optimizer.zero_grad()
        world.learn(x.to("cuda"))
        nn.utils.clip_grad_norm_(world.net.parameters(), 1.0)
        world.gpu(0.3, 3)
        world.optimizer.step()


def pinned(waits: bool) -> Callable[[World], None]:
    """Batches lie in pinned memory; the loop waits for their copies, or does not."""

    def loop(world: World) -> None:
        for x in world.loader():
            world.optimizer.zero_grad()
            world.learn(x.pin_memory().to("cuda", non_blocking=not waits))
            world.optimizer.step()

    return loop


def masking(world: World) -> None:
    """Outputs are chosen by a mask, which waits for the device and is not heard."""
    for x in world.loader():
        world.optimizer.zero_grad()
        out = world.net(x.to("cuda"))
        out[out >= 0].mean().backward()
        world.optimizer.step()


def growing(world: World) -> None:
    """Each step needs memory of a size that the allocator has not met yet."""
    for x in world.loader():
        world.device.allocate(len(world.device.sizes))
        world.optimizer.zero_grad()
        world.learn(x.to("cuda"))
        world.optimizer.step()


@dataclass(frozen=True)
class Kind:
    """A loop, and what it is to be told first."""

    loop: Callable[[World], None]
    first: tuple[str, ...]
    """Rules of which one stands first; empty = nothing is found that costs a tenth."""
    options: dict[str, Any] = field(default_factory=dict)
    ramps: bool = False
    """The device's clock is low at the begin."""
    idles_within: bool = False
    """The device idles inside of phases, which marks do not show: its busy time is told as an upper bound, its gap as a
    lower one, and what lies between is no more than the time in which it had caught up with its host."""


STARVED: Final = ("loader-without-workers",)
LAUNCHES: Final = ("not-compiled", "launch-bound")
"""The first stands in the other's place where the model is not compiled."""
SMALL: Final = {"steps": 30, "kernels": 100, "kernel_ms": 0.005, "cost_ms": 0.02}
SLOW_LINK: Final = {"bytes_per_ms": 1e6}
"""A batch takes 2 ms to copy from pinned memory. On one stream that is not sooner over where nobody waits for it."""
KINDS: Final = {
    "starved": Kind(plain, STARVED, {"fetch_ms": 15.0}),
    "healthy": Kind(plain, (), {"fetch_ms": 0.5}),
    "accumulation 2, 60 % wait": Kind(accumulating(2), STARVED, {"fetch_ms": 26.0}),
    "accumulation 4, 60 % wait": Kind(accumulating(4), STARVED, {"fetch_ms": 26.0}),
    "accumulation 16, 60 % wait": Kind(accumulating(16), STARVED, {"fetch_ms": 26.0, "steps": 128}),
    "normalising and mixup": Kind(normalising, (), {"fetch_ms": 0.5}),
    "normalising, starved": Kind(normalising, STARVED, {"fetch_ms": 15.0}),
    "EMA and metrics": Kind(averaging, (), {"fetch_ms": 0.5}),
    "EMA, starved": Kind(averaging, STARVED, {"fetch_ms": 15.0}),
    "hidden next, then numpy": Kind(hidden, ("slow-python", *STARVED), {"fetch_ms": 15.0}),
    "item each step": Kind(reading(1), (), {"fetch_ms": 0.5}),
    "item each step, starved": Kind(reading(1), STARVED, {"fetch_ms": 15.0}),
    "item each tenth": Kind(reading(10), (), {"fetch_ms": 0.5}),
    "item each tenth, starved": Kind(reading(10), STARVED, {"fetch_ms": 15.0}),
    "loss in the forward": Kind(within, (), {"fetch_ms": 0.5}),
    "loss in the forward, starved": Kind(within, STARVED, {"fetch_ms": 15.0}),
    "prefetcher on a side stream": Kind(prefetching, (), {"fetch_ms": 0.5}),
    "prefetcher, starved": Kind(prefetching, STARVED, {"fetch_ms": 20.0}),
    "loader that launches work": Kind(plain, STARVED, {"fetch_ms": 15.0, "after_ms": 3.0}),
    "GradScaler": Kind(scaling, (), {"fetch_ms": 0.5}),
    "GradScaler, starved": Kind(scaling, STARVED, {"fetch_ms": 15.0}),
    "clipping": Kind(clipping, (), {"fetch_ms": 0.5}),
    "clipping, starved": Kind(clipping, STARVED, {"fetch_ms": 15.0}),
    "clock ramp": Kind(plain, (), {"fetch_ms": 0.5}, ramps=True),
    "clock ramp, starved": Kind(plain, STARVED, {"fetch_ms": 15.0}, ramps=True),
    "clock ramp, item each step": Kind(reading(1), STARVED, {"fetch_ms": 15.0}, ramps=True),
    "new sizes of memory": Kind(growing, (), {"fetch_ms": 0.5}),
    "new sizes of memory, starved": Kind(growing, STARVED, {"fetch_ms": 15.0}),
    "new sizes in the forward": Kind(plain, (), {"fetch_ms": 0.5, "new_sizes": 5}, idles_within=True),
    "new sizes in the forward, starved": Kind(plain, STARVED, {"fetch_ms": 15.0, "new_sizes": 5}, idles_within=True),
    "small kernels": Kind(plain, LAUNCHES, {"fetch_ms": 0.5, **SMALL}, idles_within=True),
    "blocking copy": Kind(pinned(True), ("heavy-transfer",), {"fetch_ms": 0.5, **SLOW_LINK}),
    "blocking copy, starved": Kind(pinned(True), STARVED, {"fetch_ms": 30.0, **SLOW_LINK}),
    "copy that is not waited for": Kind(pinned(False), ("heavy-transfer",), {"fetch_ms": 0.5, **SLOW_LINK}),
    "pageable copy": Kind(plain, ("pageable-transfer",), {"fetch_ms": 0.5, **SLOW_LINK}),
    "mask": Kind(masking, (), {"fetch_ms": 0.5}),
    "mask, starved": Kind(masking, STARVED, {"fetch_ms": 15.0}),
}


def played(kind: Kind, **options: Any) -> tuple[SimulatedCuda, Recording]:
    """Runs a loop under the taps; returns its device and what was recorded. Args: options: of its world, instead."""
    with SimulatedCuda(SimulatedDevice(ramps=kind.ramps)) as cuda:
        world = World(cuda, **(kind.options | options))
        recorder = cuda.device.recorder()
        with listening(recorder, {"world": world}, accelerated=True):
            kind.loop(world)
        cuda.device.synchronize()
        return cuda, recorder.close()


class Shares(NamedTuple):
    """What the device did from one moment to another, as parts of that time less what gpu_doctor itself took of it."""

    wait: float
    """Nothing, while the host waited for a batch."""
    copies: float
    """It copied, and its compute stream did nothing."""
    gap: float
    """Its compute stream did nothing, whatever for."""
    busy: float


def shares(device: SimulatedDevice, begin: int, end: int) -> Shares:
    """The truth, by the timeline of the device."""
    whole = np.asarray([[begin, end]], dtype=np.float64)

    def of(spans: list[tuple[int, int]]) -> Spans:
        return common(whole, united(np.asarray(spans, dtype=np.float64).reshape(-1, 2)))

    kernels = of([(one.begin, one.end) for one in device.work if one.kind != "copy" and one.stream == 0])
    same = of([(one.begin, one.end) for one in device.work if one.kind == "copy" and one.stream == 0])
    aside = of([(one.begin, one.end) for one in device.work if one.kind == "copy" and one.stream != 0])
    idle = without(whole, kernels)
    own = common(without(idle, same), of(device.own))
    waits = without(common(without(idle, same), of(device.waits)), own)
    copies = length(common(idle, same)) + length(without(common(idle, aside), of(device.waits)))
    total = end - begin - length(own)
    return Shares(length(waits) / total, copies / total, (length(idle) - length(own)) / total, length(kernels) / total)


def true_shares(device: SimulatedDevice) -> Shares:
    """By the device's timeline, from an early ask for a batch to the last one."""
    return shares(device, device.asked[WARM], device.asked[-1])


def our_shares(recording: Recording) -> Shares:
    """By the device's columns, of the steps that were read after the first."""
    steps = recording.steps.rows(WARM)
    read = steps.where(steps.device_steps > 0)
    whole = float(np.sum(read.gpu_s + read.gpu_gap_s))
    names = ("exposed_wait_s", "exposed_transfer_s", "gpu_gap_s", "gpu_s")
    return Shares(*(float(np.sum(getattr(read, name))) / whole for name in names))
