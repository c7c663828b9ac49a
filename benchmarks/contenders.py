"""The training loops of the overhead benchmark and the tools that watch them, as they run in a process of their own.

A program is a cell as a notebook has it: names that exist already, then the loop. A turn is one program under one tool:
some steps to warm up (the tool finds its models, opens its threads), then the timed ones. The loop itself reads the
clocks, at the steps that `Stamps.at` names.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.util
import io
import json
import os
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Client
from textwrap import dedent
from typing import Any, Final, NamedTuple

import torch

DEVICE: Final = os.environ.get("GPU_DOCTOR_BENCH_DEVICE", "cpu")
"""Where the loops train; their data lies there too. GPU: not yet run on one."""
PROFILED_SHARE: Final = 0.1
"""torch.profiler keeps every operator in memory until it ends: it gets fewer steps."""
RECORDED_SHARE: Final = 0.95
"""Of the steps at least: of a sweep two models' steps may pass for one, with less nothing was measured."""
FIRST: Final = 400
"""Steps at a loop's begin whose cost is told apart, where a program asks for it."""
FIRST_PART, LATER_PART = f", first {FIRST}", ", later"
BARE, OFF, ON, PROFILER, GPUPROF, TRACEML = (
    "bare",
    "gpu_doctor, no view",
    "gpu_doctor, live view",
    "torch.profiler",
    "gpuprof",
    "TraceML",
)

# ---- clocks ---------------------------------------------------------------------------------------------------------


class Stamp(NamedTuple):
    """The clocks at one step, in seconds."""

    wall_s: float
    cpu_s: float
    """Of all threads of the process: what a tool does in the background is in it, other processes are not."""
    thread_s: float
    """CPU of the training thread."""
    told_s: float
    """What gpu_doctor says it has cost so far, NaN under other tools."""


class Spent(NamedTuple):
    """What a part of a turn took, in seconds a step."""

    wall_s: float
    cpu_s: float
    thread_s: float
    told_s: float
    """`overhead_s` of gpu_doctor."""
    ours_s: float
    """Its column `ours_s`; NaN where there is none."""


class Stamps:
    """Called by the loop at the steps in `at`."""

    def __init__(self, at: set[int], watched: bool) -> None:
        """Args: at: numbers of steps that have ended. watched: gpu_doctor is asked what it has cost so far."""
        self.at, self._watched = at, watched
        self.last = max(at)
        self.found: dict[int, Stamp] = {}
        self.begun: dict[int, Stamp] = {}
        """As `found`, after gpu_doctor was asked: where the part begins that follows."""

    def __call__(self, done: int) -> None:
        """Reads the clocks after so many steps; what it takes to ask gpu_doctor is in no part that begins here."""
        if DEVICE != "cpu":
            torch.cuda.synchronize()
        wall_s, cpu_s, thread_s = time.perf_counter(), time.process_time(), time.thread_time()
        told_s = self._told_s() if self._watched else float("nan")
        self.found[done] = Stamp(wall_s, cpu_s, thread_s, told_s)
        if done != self.last:
            now = time.perf_counter(), time.process_time(), time.thread_time()
            self.begun[done] = Stamp(*now, told_s)

    @staticmethod
    def _told_s() -> float:
        from gpu_doctor.capture import running

        recorder = running()
        assert recorder is not None
        return float(recorder.so_far().overhead_s)

    def spent(self, begin: int, end: int, recording: Any = None) -> Spent:
        """What the steps between two stamps took; `recording`: gpu_doctor's, of the whole turn."""
        steps = end - begin
        wall_s, cpu_s, thread_s, told_s = (
            (after - before) / steps for after, before in zip(self.found[end], self.begun[begin], strict=True)
        )
        column = getattr(getattr(recording, "steps", None), "ours_s", None)
        ours_s = float("nan") if column is None else float(column[begin:end].sum())
        return Spent(wall_s, cpu_s, thread_s, told_s, ours_s / steps)


# ---- programs -------------------------------------------------------------------------------------------------------

_HEAD = """
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
"""
_LOOP = """
done = 0
while done < stamps.last:
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        done += 1
        if done in stamps.at:
            stamps(done)
            if done == stamps.last:
                break
"""
_STEP = _LOOP[_LOOP.index("        optimizer.zero") : _LOOP.index("        done += 1")]
_TRACED = _LOOP.replace(_STEP, "        with trace_step(model):\n" + textwrap.indent(_STEP, "    "))
_COMMON = """
rows = torch.randn(256 * batch, width, device=device)
wanted = torch.randint(0, 8, (256 * batch,), device=device)
loader = DataLoader(TensorDataset(rows, wanted), batch_size=batch)
criterion = nn.CrossEntropyLoss()
"""
_MLP = (
    "width, batch = 64, 32\n"
    + _COMMON
    + "model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).to(device)\n"
)
_SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)\n"


@dataclass(frozen=True)
class Program:
    """A cell and the names that it finds."""

    setup: str
    cell: str
    needs: str = ""
    """A package that must be installed."""
    first: bool = False
    """The first steps are a part of their own, and nothing is left out as warming up."""
    steps: int = 0
    """Of a cell that is timed whole; 0 = as many as the seconds of a turn hold."""

    def parts(self, warm: int, steps: int) -> dict[str, tuple[int, int]]:
        """Names of the timed parts, each after a comma, with the steps that they lie between."""
        if self.steps:
            return {"": (0, self.steps)}
        if self.first:
            return {FIRST_PART: (0, FIRST), LATER_PART: (FIRST, FIRST + steps)}
        return {"": (warm, warm + steps)}

    def namespace(self, batch: int) -> dict[str, Any]:
        """Where the cell runs; `batch`: of the program whose steps are to take some ms."""
        names: dict[str, Any] = {"__name__": "__main__", "device": DEVICE, "calibrated": batch}
        exec(compile(_HEAD + dedent(self.setup), "<setup>", "exec"), names)
        return names


MLP, BUSY = "small MLP, SGD", "5 ms step"
PROGRAMS: Final[dict[str, Program]] = {
    MLP: Program(_MLP + _SGD, _LOOP),
    "small MLP, Adam": Program(_MLP + "optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)\n", _LOOP),
    "101 Linears": Program(
        "width, batch = 8, 32\n"
        + _COMMON
        + """
model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(101)]).to(device)
for layer in model:
    nn.init.eye_(layer.weight)  # no denormal numbers after a hundred layers
"""
        + _SGD,
        _LOOP,
    ),
    "zip of two loaders": Program(
        _MLP + _SGD + "others = DataLoader(TensorDataset(torch.randn(256 * 32, 64)), batch_size=32)\n",
        _LOOP.replace("x, y in loader", "(x, y), (other,) in zip(loader, others)").replace(
            "criterion(model(x), y)", "criterion(model(x), y) + model(other).square().mean()"
        ),
    ),
    "arrays by hand": Program(
        _MLP + _SGD,
        _LOOP.replace("for x, y in loader:", "for begin in range(0, len(rows), 32):").replace(
            "        optimizer.zero_grad()",
            "        x, y = rows[begin : begin + 32], wanted[begin : begin + 32]\n        optimizer.zero_grad()",
        ),
    ),
    "update by hand": Program(
        """
weights, shift = 5 * torch.randn(4, 1), 5 * torch.randn(1)
layer = nn.Linear(4, 1)


def batches(size=32):
    while True:
        x = torch.randn(size)
        x = torch.cat([x.unsqueeze(1) ** power for power in range(1, 5)], 1)
        yield x, x @ weights + shift


batches = batches()
""",
        """
stamps(0)
done = 0
while done < stamps.last:
    x, y = next(batches)
    layer.zero_grad()
    loss = functional.smooth_l1_loss(layer(x), y)
    loss.backward()
    for parameter in layer.parameters():
        parameter.data.add_(parameter.grad, alpha=-0.1)
    done += 1
    if done in stamps.at:
        stamps(done)
""",
        first=True,
    ),
    "sweep of 6 models": Program(
        """
import copy
rows = torch.randn(3072, 64, device=device)
wanted = torch.sin(rows @ torch.randn(64, 1, device=device))


def fresh(width):
    layers = nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
    return nn.Sequential(*layers).to(device)


def trained(model, rate, epochs=4):
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(epochs):
        for chosen in torch.randperm(len(rows)).split(512):
            optimizer.zero_grad()
            loss = functional.mse_loss(model(rows[chosen]), wanted[chosen])
            loss.backward()
            optimizer.step()
    return loss.item()
""",
        """
stamps(0)
found = {}
for width in (64, 128, 192):
    start = fresh(width)
    for rate in (1e-3, 3e-3):
        found[width, rate] = trained(copy.deepcopy(start), rate)
stamps(144)
""",
        steps=144,
    ),
    "skorch": Program(
        _MLP
        + """
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback


class Stamping(Callback):
    def on_train_begin(self, net, **rest):
        self.done = 0

    def on_batch_end(self, net, training=False, **rest):
        self.done += 1
        if self.done in stamps.at:
            stamps(self.done)
""",
        """
net = NeuralNetClassifier(
    model, criterion=nn.CrossEntropyLoss, max_epochs=-(-stamps.last // 256), batch_size=32, lr=1e-4, train_split=None,
    callbacks=[Stamping()], callbacks__print_log=None, verbose=0,
)
net.fit(rows, wanted)
""",
        needs="skorch",
    ),
    "Lightning": Program(
        _MLP
        + """
import logging
import lightning
for name in ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero"):
    logging.getLogger(name).setLevel(logging.ERROR)


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))

    def training_step(self, batch, number):
        x, y = batch
        return functional.cross_entropy(self.layers(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-4)


class Stamping(lightning.Callback):
    done = 0

    def on_train_batch_end(self, *given):
        self.done += 1
        if self.done in stamps.at:
            stamps(self.done)
""",
        """
trainer = lightning.Trainer(
    max_steps=stamps.last, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False, callbacks=[Stamping()],
)
trainer.fit(Classifier(), loader)
""",
        needs="lightning",
    ),
    BUSY: Program(
        "width, batch = 512, calibrated\n"
        + _COMMON
        + "model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 8)).to(device)\n"
        + _SGD,
        _LOOP,
    ),
}
"""By name. The peers watch `MLP` alone."""


def installed() -> dict[str, Program]:
    """The programs that can run here."""
    return {name: one for name, one in PROGRAMS.items() if not one.needs or importlib.util.find_spec(one.needs)}


@dataclass
class Turn:
    """One program, ready to be run."""

    program: Program
    names: dict[str, Any]
    stamps: Stamps
    traced: str = ""
    """Another text of the cell, where a tool wants to stand in it."""
    code: Any = field(init=False)

    def __post_init__(self) -> None:
        self.names["stamps"] = self.stamps
        self.code = compile(self.traced or self.program.cell, "<cell>", "exec")

    def run(self) -> None:
        """As written."""
        exec(self.code, self.names)


def batch_for(step_s: float) -> int:
    """The batch size with which a step of `BUSY` takes about `step_s` on this machine."""
    batch = 64
    for _ in range(3):
        spent = min(_bare_s(PROGRAMS[BUSY], batch, 2, 10) for _ in range(5))
        batch = max(1, round(batch * step_s / spent))
    return batch


def step_s(program: Program, batch: int) -> float:
    """Seconds of CPU of a bare step, roughly."""
    return min(_bare_s(program, batch, 5, 40) for _ in range(3))


def _bare_s(program: Program, batch: int, warm: int, steps: int) -> float:
    parts = program.parts(warm, steps)
    turn = Turn(program, program.namespace(batch), Stamps({one for part in parts.values() for one in part}, False))
    turn.run()
    return min(turn.stamps.spent(*part).cpu_s for part in parts.values())


# ---- tools ----------------------------------------------------------------------------------------------------------

Tool = Callable[[Turn], Any]
"""Runs a turn; gpu_doctor's recording of it, or None."""


def bare(turn: Turn) -> None:
    """The loop alone."""
    turn.run()


def watched(turn: Turn) -> Any:
    """gpu_doctor's taps and poller, as of a cell without a view.

    Raises:
        RuntimeError: if it recorded too few of the steps: then nothing was measured.
    """
    import gpu_doctor

    return _checked(gpu_doctor.case(turn.program.cell, turn.names).run(), turn)


def _checked(recording: Any, turn: Turn) -> Any:
    recorded = int(recording.steps.count.sum())
    if recorded < RECORDED_SHARE * turn.stamps.last:
        raise RuntimeError(f"gpu_doctor recorded {recorded} steps of {turn.stamps.last}.")
    return recording


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

    def tool(turn: Turn) -> Any:
        shell.user_ns.update(turn.names)
        before = len(sent)
        with contextlib.redirect_stdout(io.StringIO()):
            result = shell.run_cell("%%gpudoctor\n" + turn.program.cell.lstrip(), store_history=False)
        result.raise_error()
        if len(sent) - before < 3:
            raise RuntimeError("The view sent nothing: a run without it was measured.")
        import gpu_doctor

        case = gpu_doctor.last_case()
        assert case is not None
        return _checked(case.recordings[-1], turn)

    return tool


def profiled(turn: Turn) -> None:
    """torch.profiler with its defaults."""
    with torch.profiler.profile():
        turn.run()
    gc.collect()


def gpuprofed(turn: Turn) -> None:
    """gpuprof's context manager with its defaults (its data base in a scratch folder, no summary printed)."""
    import gpuprof

    with tempfile.TemporaryDirectory() as folder:
        with gpuprof.profile("overhead", summary=False, db_path=f"{folder}/gpuprof.db"):
            turn.run()


@contextlib.contextmanager
def tracemled() -> Iterator[Tool]:
    """TraceML's quickstart; this process was started by `traceml run`."""
    import traceml_ai as traceml

    traceml.init(mode="auto")

    def tool(turn: Turn) -> None:
        turn.names["trace_step"] = traceml.trace_step
        turn.run()

    yield tool


# ---- the process ----------------------------------------------------------------------------------------------------


class Seat:
    """The programs and the tools of one process."""

    def __init__(self, tools: list[str], stack: contextlib.ExitStack, batch: int) -> None:
        makers: dict[str, Callable[[], Tool]] = {
            BARE: lambda: bare,
            OFF: lambda: watched,
            ON: viewed,
            PROFILER: lambda: profiled,
            GPUPROF: lambda: gpuprofed,
            TRACEML: lambda: stack.enter_context(tracemled()),
        }
        self._tools = {name: makers[name]() for name in tools}
        self._batch = batch
        self._names: dict[str, dict[str, Any]] = {}

    def turn(self, name: str, tool: str, warm: int, steps: int) -> dict[str, Spent]:
        """What each part of a program's turn under a tool took."""
        program = PROGRAMS[name]
        if name not in self._names:
            self._names[name] = program.namespace(self._batch)
        if tool == PROFILER:
            warm, steps = min(warm, 20), max(round(steps * PROFILED_SHARE), 20)
        parts = program.parts(warm, steps)
        stamps = Stamps({one for part in parts.values() for one in part}, tool in (OFF, ON))
        gc.collect()
        turn = Turn(program, self._names[name], stamps, _TRACED if tool == TRACEML else "")
        recording = self._tools[tool](turn)
        return {name + part: stamps.spent(*ends, recording) for part, ends in parts.items()}


def main() -> None:
    """Answers the parent's questions (which program, which tool, how many steps) until it hangs up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", help="of the parent's socket")
    parser.add_argument("tools", help="names, separated by semicolons")
    parser.add_argument("--batch", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with contextlib.ExitStack() as stack:
        seat = Seat(options.tools.split(";"), stack, options.batch)
        parent = stack.enter_context(Client(options.address))
        while (asked := parent.recv()) is not None:
            parent.send({part: tuple(spent) for part, spent in seat.turn(*asked).items()})


if __name__ == "__main__":
    main()
