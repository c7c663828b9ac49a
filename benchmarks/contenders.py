"""The loops of the overhead benchmark and the tools that watch them, as they run in a process of their own.

Every tool is used as its own page says. A segment is one loop under one tool: some steps to warm up (the tool finds its
models, opens its threads), then the steps that are timed, in one piece, by the loop itself.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Client
from typing import Any, Final, NamedTuple

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

MLP, DEEP, BUSY = "64-wide MLP, batch 32", "101 tiny Linears", "5 ms step"
BARE, OFF, ON, PROFILER, GPUPROF, TRACEML = (
    "bare",
    "gpu_doctor, no view",
    "gpu_doctor, live view",
    "torch.profiler",
    "gpuprof",
    "TraceML",
)
DEVICE: Final = os.environ.get("GPU_DOCTOR_BENCH_DEVICE", "cpu")
"""Where the loops train; their data lies there too. GPU: not yet run on one."""
BATCHES: Final = 256
"""Batches in an epoch: the cost of an epoch's edge is part of the figure, as it is in a real loop."""
PROFILED_SHARE: Final = 0.1
"""torch.profiler keeps every operator in memory until it ends: it gets fewer steps."""


@dataclass
class Loop:
    """Everything that a training loop needs."""

    model: nn.Module
    loader: DataLoader[Any]
    optimizer: torch.optim.Optimizer
    criterion: nn.Module


class Cost(NamedTuple):
    """What a timed step took, on the wall and of the CPU."""

    wall_s: float
    cpu_s: float
    """Of all threads of the process: what a tool does in the background is in it, other processes are not."""


class Lap:
    """The clocks over the timed part of a segment."""

    def __init__(self) -> None:
        _settle()
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def cost(self, steps: int) -> Cost:
        """Since the begin, a step."""
        _settle()
        return Cost((time.perf_counter() - self._wall) / steps, (time.process_time() - self._cpu) / steps)


def _settle() -> None:
    """What was launched on a GPU is done."""
    if DEVICE != "cpu":
        torch.cuda.synchronize()


Tool = Callable[[Loop, int, int], Cost]
"""Loop, steps to warm up, steps to time -> what a step took."""


def train(loop: Loop, warm: int, steps: int) -> Cost:
    """The plain loop."""
    model, loader, optimizer, criterion = loop.model, loop.loader, loop.optimizer, loop.criterion
    lap, done = Lap(), 0
    while True:
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            done += 1
            if done == warm:
                lap = Lap()
            elif done == warm + steps:
                return lap.cost(steps)


def train_traced(trace_step: Callable[[nn.Module], Any]) -> Tool:
    """The same loop with TraceML's context around each step, as its quickstart says."""

    def traced(loop: Loop, warm: int, steps: int) -> Cost:
        model, loader, optimizer, criterion = loop.model, loop.loader, loop.optimizer, loop.criterion
        lap, done = Lap(), 0
        while True:
            for x, y in loader:
                with trace_step(model):
                    optimizer.zero_grad()
                    loss = criterion(model(x), y)
                    loss.backward()
                    optimizer.step()
                done += 1
                if done == warm:
                    lap = Lap()
                elif done == warm + steps:
                    return lap.cost(steps)

    return traced


def _loop(model: nn.Module, width: int, batch: int) -> Loop:
    data = TensorDataset(
        torch.randn(BATCHES * batch, width, device=DEVICE), torch.randint(0, 8, (BATCHES * batch,), device=DEVICE)
    )
    model = model.to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    return Loop(model, DataLoader(data, batch_size=batch), optimizer, nn.CrossEntropyLoss())


def mlp() -> Loop:
    """A small step: what a tool costs is a large part of it."""
    return _loop(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)), 64, 32)


def deep() -> Loop:
    """Many submodules: what a tool costs per module call."""
    layers = [nn.Linear(8, 8) for _ in range(101)]
    for layer in layers:
        nn.init.eye_(layer.weight)  # no denormal numbers after a hundred layers
    return _loop(nn.Sequential(*layers), 8, 32)


def busy(batch: int) -> Loop:
    """A step of real work; `batch` sets how much."""
    return _loop(nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 8)), 512, batch)


def batch_for(step_s: float) -> int:
    """The batch size with which a step of `busy` takes about `step_s` on this machine."""
    batch = 64
    for _ in range(3):
        loop = busy(batch)
        costs = [train(loop, 2, 10) for _ in range(10)]
        spent = min(one.cpu_s if DEVICE == "cpu" else one.wall_s for one in costs)
        batch = max(1, round(batch * step_s / spent))
    return batch


# ---- tools ----------------------------------------------------------------------------------------------------------


def watched(loop: Loop, warm: int, steps: int) -> Cost:
    """gpu_doctor's taps and poller.

    Raises:
        RuntimeError: if it recorded another number of steps than there were: then nothing was measured.
    """
    import gpu_doctor

    with gpu_doctor.watch() as run:
        spent = train(loop, warm, steps)
    assert run.recording is not None
    _expect(int(run.recording.steps.count.sum()), warm + steps)
    return spent


def _expect(recorded: int, steps: int) -> None:
    if recorded != steps:
        raise RuntimeError(f"gpu_doctor recorded {recorded} steps of {steps}.")


def viewed() -> Tool:
    """`%%gpudoctor` in a real shell, with the panel, its refresher and its verdicts; the page is a sink."""
    import comm
    from comm.base_comm import BaseComm
    from IPython.core.interactiveshell import InteractiveShell

    sent: list[int] = []

    class Sink(BaseComm):
        def publish_msg(self, msg_type: Any, data: Any = None, *args: Any, **rest: Any) -> None:
            sent.append(len(json.dumps(data, default=str)))  # a kernel would write it to a socket

    comm.create_comm = lambda *args, **kwargs: Sink(*args, **kwargs)
    shell = InteractiveShell()
    shell.kernel = object()  # the panel is opened where there is a kernel
    shell.run_line_magic("load_ext", "gpu_doctor")

    def tool(loop: Loop, warm: int, steps: int) -> Cost:
        shell.user_ns.update(train=train, loop=loop, warm=warm, steps=steps)
        before = len(sent)
        with contextlib.redirect_stdout(io.StringIO()):
            result = shell.run_cell("%%gpudoctor\nspent = train(loop, warm, steps)\n", store_history=False)
        result.raise_error()
        if len(sent) - before < 3:
            raise RuntimeError("The view sent nothing: a run without it was measured.")
        import gpu_doctor

        case = gpu_doctor.last_case()
        assert case is not None
        _expect(int(case.recordings[-1].steps.count.sum()), warm + steps)
        spent: Cost = shell.user_ns["spent"]
        return spent

    return tool


def profiled(loop: Loop, warm: int, steps: int) -> Cost:
    """torch.profiler with its defaults."""
    steps = max(round(steps * PROFILED_SHARE), 20)
    with torch.profiler.profile():
        spent = train(loop, min(warm, 20), steps)
    gc.collect()
    return spent


def gpuprofed(loop: Loop, warm: int, steps: int) -> Cost:
    """gpuprof's context manager with its defaults (its data base in a scratch folder, no summary printed)."""
    import gpuprof

    with tempfile.TemporaryDirectory() as folder:
        with gpuprof.profile("overhead", summary=False, db_path=f"{folder}/gpuprof.db"):
            return train(loop, warm, steps)


@contextlib.contextmanager
def tracemled() -> Iterator[Tool]:
    """TraceML's quickstart; this process was started by `traceml run`."""
    import traceml_ai as traceml

    traceml.init(mode="auto")
    yield train_traced(traceml.trace_step)


def main() -> None:
    """Answers the parent's questions (which loop, which tool) until it hangs up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", help="of the parent's socket")
    parser.add_argument("tools", help="names, separated by semicolons")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps-s", type=json.loads, required=True, help="seconds of a bare step, for each loop")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--warm", type=float, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loops = {MLP: mlp(), DEEP: deep(), BUSY: busy(options.batch)}
    with contextlib.ExitStack() as stack:
        makers: dict[str, Callable[[], Tool]] = {
            BARE: lambda: train,
            OFF: lambda: watched,
            ON: viewed,
            PROFILER: lambda: profiled,
            GPUPROF: lambda: gpuprofed,
            TRACEML: lambda: stack.enter_context(tracemled()),
        }
        tools = {name: makers[name]() for name in options.tools.split(";")}
        parent = stack.enter_context(Client(options.address))
        while (asked := parent.recv()) is not None:
            loop_name, tool_name = asked
            step_s = options.steps_s[loop_name]
            steps, warm = max(round(options.seconds / step_s), 10), max(round(options.warm / step_s), 5)
            parent.send(tuple(tools[tool_name](loops[loop_name], warm, steps)))


if __name__ == "__main__":
    main()
