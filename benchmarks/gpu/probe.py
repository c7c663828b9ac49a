"""Asks the card what CUDA does where the taps rely on it: the contract that the simulated device keeps."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final
from unittest import mock

import torch
from torch import nn

import gpu_doctor
from benchmarks.gpu import gpm
from benchmarks.gpu.kept import Row, Stage, row
from benchmarks.gpu.timing import synchronize

BUSY_S: Final = 0.05
WAITS: Final[dict[str, bool | None]] = {
    "loss.item()": True,
    "loss.cpu()": True,
    "batch.to(device), pageable": True,
    "batch.to(device), pinned": True,
    "batch.to(device, non_blocking), pageable": None,
    "batch.to(device, non_blocking), pinned": False,
    "nonzero": True,
    "boolean index": True,
    "clip_grad_norm_": False,
    "GradScaler.step": True,
    "torch.tensor(device=)": True,
    "an allocation that grows": None,
    "empty_cache": None,
}
"""Says whether a call holds the host until the device is through, as our taps take it; None = to be found out."""
REPLAYS: Final = 2000
MOST_QUEUED: Final = 5000
GPM_NUMBERS: Final = range(1, 334)


def run(stage: Stage) -> None:
    """Asks first what needs a card that nothing has touched."""
    works: dict[str, Callable[[], Row]] = {
        "taps initialise nothing": initialised,
        "SM clock in the first 2 s": partial(ramp, stage),
        "event latency": partial(latency, stage),
        "a mark": partial(a_mark, stage),
        "a fold": partial(a_fold, stage),
        "queue depth": depth,
    }
    works |= {f"waits: {name}": partial(waits, stage, name) for name in WAITS}
    works["graph replays under watch()"] = partial(replayed, stage)
    works["GPM metrics"] = partial(gpm_metrics, stage)
    works["compiled step under watch()"] = partial(compiled, stage, True)
    works["reduce-overhead's loss under watch()"] = partial(compiled, stage, False)
    works["capture"] = captured  # may leave a stream that cannot be used any more
    stage.run(works, share=6.0)


def us(seconds: list[float]) -> str:
    """Writes median, tenth and ninetieth per cent in microseconds."""
    ends = statistics.quantiles(seconds, n=10) if len(seconds) > 1 else seconds * 9
    return f"{1e6 * statistics.median(seconds):.1f} us ({1e6 * ends[0]:.1f} to {1e6 * ends[-1]:.1f})"


def timed(work: Callable[[], object], times: int) -> list[float]:
    """Times each call, in seconds."""
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        found.append(time.perf_counter() - begin)
    return found


def busy(seconds: float = BUSY_S) -> torch.cuda.Event:
    """Keeps the device busy for about so long; returns an event that is passed after it."""
    after = torch.cuda.Event()
    torch.cuda._sleep(int(1.7e9 * seconds))  # type: ignore[no-untyped-call]  # clocks of 1.4 to 2 GHz
    after.record()
    return after


def initialised() -> Row:
    """Asks whether our taps initialise CUDA."""
    before = torch.cuda.is_initialized()
    with gpu_doctor.watch():
        after = torch.cuda.is_initialized()
    return row(f"CUDA initialised before watch(): {before}, in it: {after}", before or not after)


def work(device: str, seconds: float, width: int) -> None:
    """Multiplies for so long."""
    left = torch.randn(width, width, device=device)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for _ in range(20):
            left @ left
        synchronize(device)


def ramp(stage: Stage) -> Row:
    """Reads how the clock rises from the first kernel on."""
    with gpm.clocks() as seen:
        work(stage.device, 2.0, stage.size(4096, 64))
    rates = [one for _, one in seen]
    at = next((s for s, one in seen if one >= 0.95 * max(rates)), None)
    return row(f"{rates[0]} to {max(rates)} MHz, 95 % of it after {at:.2f} s; {len(rates)} readings", None, seen=seen)


def latency(stage: Stage) -> Row:
    """Times how long an idle device takes to pass an event, and what lies between two in a row."""
    found, between = [], []
    for _ in range(stage.size(300, 20)):
        first, second = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin = time.perf_counter()
        first.record()
        while not first.query():
            pass
        found.append(time.perf_counter() - begin)
        first.record()
        second.record()
        second.synchronize()
        between.append(first.elapsed_time(second) * 1e-3)
    return row(f"passed after {us(found)}; two in a row {us(between)} apart", None, passed_s=found, between_s=between)


def a_mark(stage: Stage) -> Row:
    """Times what our clock's marks cost the host: made anew, from the pool, and asked for."""
    from gpu_doctor.capture.taps.gpu_clock import CudaClock

    clock, times = CudaClock(), stage.size(500, 50)
    marks: list[Any] = []
    fresh = timed(lambda: marks.append(clock.mark()), times)
    synchronize(stage.device)
    asked = timed(lambda: clock.done(marks[0]), times)
    for one in marks:
        clock.free(one)
    pooled = timed(clock.mark, times)
    said = f"made anew {us(fresh)}, from the pool {us(pooled)}, asked {us(asked)}"
    return row(said, None, fresh_s=fresh, pooled_s=pooled, asked_s=asked)


class Tiny:
    """Trains on little kernels, so that what taps cost is seen."""

    def __init__(self, device: str, depth: int = 8) -> None:
        self.device, self.model = device, nn.Sequential(*[nn.Linear(64, 64) for _ in range(depth)]).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-6)
        self.x = torch.randn(32, 64, device=device)

    def step(self) -> torch.Tensor:
        """Makes one step; returns its loss."""
        self.optimizer.zero_grad()
        loss = self.forward()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss

    def forward(self) -> torch.Tensor:
        """Computes the loss."""
        return self.model(self.x).square().mean()  # type: ignore[no-any-return]

    def train(self, steps: int) -> float:
        """Makes so many steps; returns the seconds of one."""
        begin = time.perf_counter()
        for _ in range(steps):
            self.step()
        synchronize(self.device)
        return (time.perf_counter() - begin) / steps


def a_fold(stage: Stage) -> Row:
    """Compares what a step costs under watch() with what the recording says of it."""
    loop, steps = Tiny(stage.device), stage.size(400, 15)
    loop.train(steps)
    bare, (watched, recording) = loop.train(steps), _watched(lambda: loop.train(steps))
    told = recording.overhead_s / max(float(recording.steps.count.sum()), 1.0)
    said = f"{1e6 * bare:.0f} us a step bare, {1e6 * watched:.0f} watched; told {1e6 * told:.0f} us"
    return row(said, None, bare_s=bare, watched_s=watched, told_s=told)


def _watched(run: Callable[[], Any]) -> tuple[Any, Any]:
    with gpu_doctor.watch() as seen:
        found = run()
    assert seen.recording is not None
    return found, seen.recording


def depth() -> Row:
    """Counts the launches that a busy stream takes before it holds the host back."""
    x = torch.zeros(1, device="cuda")
    x.add_(1)
    torch.cuda.synchronize()
    after, found = busy(0.3), list[float]()
    while len(found) < MOST_QUEUED and not after.query():
        found += timed(lambda: x.add_(1), 1)
        if found[-1] > 0.01:
            break
    torch.cuda.synchronize()
    return row(f"{len(found)} launches, the last of {1e3 * found[-1]:.2f} ms; the others {us(found[:-1])}", None)


def calls(device: str) -> dict[str, Callable[[], object]]:
    """Makes the calls of WAITS."""
    loss, many = torch.randn((), device=device), torch.randn(4096, device=device)
    pageable = torch.randn(1 << 20)
    pinned = pageable.pin_memory() if torch.cuda.is_available() else pageable
    weight = nn.Parameter(torch.randn(64, 64, device=device))
    weight.grad = torch.randn(64, 64, device=device)
    optimizer, scaler = torch.optim.SGD([weight], lr=1e-6), torch.amp.GradScaler(device)
    scaler.scale(loss)
    return {
        "loss.item()": loss.item,
        "loss.cpu()": loss.cpu,
        "batch.to(device), pageable": lambda: pageable.to(device),
        "batch.to(device), pinned": lambda: pinned.to(device),
        "batch.to(device, non_blocking), pageable": lambda: pageable.to(device, non_blocking=True),
        "batch.to(device, non_blocking), pinned": lambda: pinned.to(device, non_blocking=True),
        "nonzero": lambda: (many > 0).nonzero(),
        "boolean index": lambda: many[many > 0],
        "clip_grad_norm_": lambda: nn.utils.clip_grad_norm_([weight], 1.0),
        "GradScaler.step": lambda: scaler.step(optimizer),
        "torch.tensor(device=)": lambda: torch.tensor([1.0, 2.0], device=device),
        "an allocation that grows": lambda: torch.empty(1 << 29, dtype=torch.uint8, device=device),
        "empty_cache": torch.cuda.empty_cache,
    }


def waits(stage: Stage, name: str) -> Row:
    """Asks whether a call returns before the kernel that was launched ahead of it is over."""
    for again in range(2):  # the first time something may be set up, which waits
        call = calls(stage.device)[name]
        torch.cuda.synchronize()
        if name.startswith("an allocation") or again:
            torch.cuda.empty_cache()
        after = busy()
        begin = time.perf_counter()
        call()
        took_s, held = time.perf_counter() - begin, after.query()
        torch.cuda.synchronize()
    wanted = WAITS[name]
    said = f"{'held' if held else 'returned'} after {1e3 * took_s:.2f} ms"
    return row(said, None if wanted is None else held == wanted, held=held, took_s=took_s)


def _graph(loop: Tiny, heard: list[bool]) -> torch.cuda.CUDAGraph:
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            loop.step()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        heard.append(torch.cuda.is_current_stream_capturing())
        loop.step()
    return graph


def captured() -> Row:
    """Records an event within a capture, and asks what the stream says of itself."""
    heard: list[bool] = []
    graph = _graph(Tiny("cuda"), heard)
    inside, recorded = torch.cuda.CUDAGraph(), ""
    x = torch.zeros(8, device="cuda")
    try:
        with torch.cuda.graph(inside):
            x.add_(1)
            torch.cuda.Event(enable_timing=True).record()
        inside.replay()
        torch.cuda.synchronize()
    except Exception as error:
        recorded = f"{type(error).__name__}: {error}"[:200]
    graph.replay()
    torch.cuda.synchronize()
    said = f"capturing is told: {heard[0]}; an event recorded in a capture: {recorded or 'no error'}"
    return row(said, heard[0], recorded=recorded)


def replayed(stage: Stage) -> Row:
    """Captures and replays under watch(): events and memory of the card must stay bounded."""
    made: list[int] = []

    class Counted(torch.cuda.Event):
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            made.append(1)
            return super().__new__(cls, *args, **kwargs)

    half, counts, free = stage.size(REPLAYS, 40) // 2, list[int](), list[int]()
    took: list[float] = []
    with mock.patch.object(torch.cuda, "Event", Counted), gpu_doctor.watch() as seen:
        graph = _graph(Tiny("cuda"), [])
        for _ in range(2):
            began = time.perf_counter()
            for _ in range(half):
                graph.replay()
            torch.cuda.synchronize()
            took.append(time.perf_counter() - began)
            counts.append(len(made))
            free.append(torch.cuda.mem_get_info()[0])
    assert seen.recording is not None
    steps = int(seen.recording.steps.count.sum())
    good = counts[1] - counts[0] <= 64 and free[0] - free[1] <= 16 << 20
    rates = " and ".join(f"{1e6 * one / half:.0f}" for one in took)
    said = f"{counts[0]} and {counts[1] - counts[0]} events made, {rates} us a replay, "
    said += f"{(free[0] - free[1]) / 1e6:.1f} MB more taken; {steps} steps heard"
    return row(said, good, events=counts, free=free, steps=steps, notes=list(seen.recording.notes))


def gpm_metrics(stage: Stage) -> Row:
    """Asks for every number of GPM while the card multiplies."""
    between = gpm.Between()
    work(stage.device, 0.5, stage.size(4096, 64))
    found = between.read(GPM_NUMBERS)
    said = ", ".join(f"{number}: {value:.4g}" for number, value in found.items())
    return row(said or "no GPM answers", None, metrics=found)


def compiled(stage: Stage, whole: bool) -> Row:
    """Trains a compiled loop with watch() and without: the losses must be the same, and all steps heard.

    Args:
        whole: the step with its optimizer; else a forward that returns its loss out of a graph's memory.
    """
    losses, steps = list[list[float]](), 20

    def train() -> None:
        torch.manual_seed(0)
        loop = Tiny(stage.device, 2)
        if whole:
            step: Callable[[], torch.Tensor] = torch.compile(
                loop.step, backend="aot_eager"
            )  # what is traced is asked, no code
        else:
            loop.forward = torch.compile(loop.forward, mode="reduce-overhead")  # type: ignore[method-assign]
            step = loop.step
        losses.append([float(step().detach()) for _ in range(steps)])

    train()
    torch.compiler.reset()
    _, recording = _watched(train)
    heard, same = int(recording.steps.count.sum()), losses[0] == losses[1]
    bad = [note for note in recording.notes if "failed" in note or "could not" in note]
    said = f"{heard} of {steps} steps heard, losses {'the same' if same else 'not the same'} as bare"
    return row("; ".join([said, *bad]), same and heard == steps and not bad, losses=losses, notes=list(recording.notes))
