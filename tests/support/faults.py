"""Makes every function of ours on the user's threads raise in turn, and sees whether the user's cell notices.

A survey first runs a cell of `cells.FAULTY` under `gpu_doctor.watch()` and writes down which functions of ours are
called between the enter and the exit of the block, on threads that are not ours and in the loader's workers. Then each
raises once, at its first or a later call: Python's trace function raises when the call begins, so the error arises
inside of the called function. A second error, in what handles the first, comes by the profile function: the first one
has taken the trace off. All that the user can see of a run is one digest: that of `everything`, over the cell's names
and the generators of random numbers.

A forked worker inherits the trace function. A spawned one reads from a folder which call is to raise.
"""

from __future__ import annotations

import atexit
import contextlib
import dis
import gc
import inspect
import json
import multiprocessing
import os
import random
import sys
import tempfile
import threading
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import gpu_doctor
from tests.support.cells import Cell, notebook, shut_down
from tests.support.everything import Everything
from tests.support.simulated_cuda import SimulatedCuda
from tests.support.simulated_device import SimulatedDevice

ROOM: Final = str(Path(gpu_doctor.__file__).parent) + os.sep
FOLDER: Final = "GPU_DOCTOR_FAULTS"
"""Environment variable: where a spawned worker finds which call is to raise, and writes down what was called."""
MOST_CALLS: Final = 30
"""Calls of one function that a worker writes down."""
SEED: Final = 19
ROWS: Final = 24
"""Samples of a cell's data."""
UNSEEN: Final = ("STARTED_IN", "LOG", "In", "_ih", "ERROR", "TROUBLE")
"""Names that the notebook has for the test's sake, which are no part of what the user sees."""
STOPPED: Final = "gpu_doctor stopped recording"
"""So the note begins after which all wrappers are off."""

_CALLS_THROUGH: Final = "stands in the user's call and only calls through"
_UNPICKLED: Final = "pickle imports it in a spawned worker"
STAND_INS: Final = {
    "Fence.around.<locals>.call": "is the fence",
    "Fence.quietly.<locals>.hook": "is the fence of torch's hooks",
    "Fence.broke": "is what the fences call",
    "Meter.broke": "is what the fence of a fetch calls",
    "capture/taps/optimizer.py:_nothing": "stands in the place of a hook, and does nothing",
    "recording_call.<locals>.call": "is the fence of a module's call",
    "_pulling.<locals>.__next__": "is the fence of an ask",
    "_backward.<locals>.backward": "is the fence of a backward",
    "Steps.zeroing.<locals>.zero_grad": "is the fence of gradients set to zero",
    "Steps.begins": "is the fence of torch's hook before a step",
    "Steps.ended": "is the fence of torch's hook after a step",
    "metered.<locals>.fetch": "is the fence of a fetch",
    "_saving.<locals>.open_archive": "is the fence of a checkpoint",
    "NextCall._around.<locals>.call": "is the fence of the next module's call",
    "through.<locals>.call": "lets a compiled graph through to the fence",
    "WorkerInit.__call__": "is the fence of a worker's begin",
    "WorkerMeter.end": "is the fence of a worker's end",
    "recording_forward.<locals>.forward": _CALLS_THROUGH,
    "given": _CALLS_THROUGH,
    "StandIn.__call__": _CALLS_THROUGH,
    "StandIn.__hash__": _CALLS_THROUGH,
    "StandIn.__eq__": _CALLS_THROUGH,
    "_hooked.<locals>.hook": "is the fence of a part that is recomputed",
    "FencedContext.__init__": "is made by it",
    "FencedContext.__enter__": "is the fence of a context's begin",
    "FencedContext.__exit__": _CALLS_THROUGH,
    "FencedContext._end": "is the fence of a context's end",
    "Seam.__call__": _CALLS_THROUGH,
    "MeteredFetch._timed.<locals>.collate_timed": _CALLS_THROUGH,
    "WorkerInit._meter.<locals>.noticing.<locals>.create_fetcher": _CALLS_THROUGH,
    "Seam.__get__": "Python asks it for the method",
    "Seam.__eq__": "libraries compare methods by it",
    "Seam.__hash__": "libraries look methods up by it",
    "capture/__init__.py:<module>": _UNPICKLED,
    "capture/fetch/__init__.py:<module>": _UNPICKLED,
    "capture/fetch/worker_init.py:<module>": _UNPICKLED,
    "capture/fetch/worker_init.py:WorkerInit": _UNPICKLED,
    "Call.__deepcopy__": "Python asks it for the copy",
    "Call.__reduce__": "pickle asks it",
}
"""By function, some with their file. Nothing can stand around these: an error in their first line is the user's. Each
is so short that none is likely."""


QUIET: Final = (
    *("capture/describe/batches.py:", "capture/fetch/prefetch_queue.py:ReadyBatches.count"),
    *("capture/taps/backward.py:_all_parameters", "capture/taps/backward.py:_gradient.<locals>.trains"),
    "capture/patching.py:_Patch.",
)
"""They read objects of the user's or of torch's own making: what raises there is not measured, and needs no note. What
fails to take a wrapper off is tried once more."""


class InjectedFault(Exception):
    """Raised inside of a function of ours."""


class Where(NamedTuple):
    """A function of ours."""

    file: str
    function: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.function}:{self.line}"


@dataclass(frozen=True)
class Fault:
    """Which call raises."""

    where: str
    """As `Where` says itself."""
    number: int = 1
    """The how manieth."""
    worker: bool = False
    """In a worker of the loader."""
    second: str = ""
    """After that, this function raises at its next call."""

    def __str__(self) -> str:
        said = f"{self.where}, call {self.number}" + (" in a worker" if self.worker else "")
        return f"{said}, then {self.second}" if self.second else said


_codes: dict[CodeType, Where | None] = {}

_firsts: dict[CodeType, int] = {}
"""Where in its code a generator begins."""


def where_of(code: CodeType) -> Where | None:
    """The function of ours with this code; None for other people's, and for what a module does when it is imported."""
    try:
        return _codes[code]
    except KeyError:
        name = code.co_filename
        found = None
        if name.startswith(ROOM):
            function = getattr(code, "co_qualname", code.co_name)
            found = Where(name.removeprefix(ROOM), function, code.co_firstlineno)
        _codes[code] = found
        return found


def begins(frame: FrameType) -> bool:
    """Whether a function begins in this frame, or the part of a context manager after its `yield`.

    Another generator also goes on where it is only closed: what it raised then would reach nobody.
    """
    code = frame.f_code
    if not code.co_flags & inspect.CO_GENERATOR:
        return True
    first = _firsts.get(code)
    if first is None:
        offsets = (one.offset for one in dis.get_instructions(code) if one.opname == "RESUME")
        first = _firsts[code] = next(offsets, -1)
    caller = frame.f_back
    return frame.f_lasti <= first or (caller is not None and caller.f_code.co_filename == contextlib.__file__)


class Injector:
    """Hears every call of ours on the user's threads, from `on` to its end; makes one of them raise."""

    def __init__(self, fault: Fault | None = None, folder: str = "") -> None:
        """Args: fault: None = only count. folder: where workers write."""
        self.fault, self.folder = fault, folder
        self.calls: Counter[str] = Counter()
        """Function -> how often it was called in this process."""
        self.after: Counter[str] = Counter()
        """Functions called after the first fault."""
        self.raised = False
        self.seconds = 0
        self.number = 0
        self.is_worker = False
        self._pid = os.getpid()

    @contextmanager
    def on(self) -> Iterator[None]:
        """The loop runs meanwhile, on this thread and on those that it starts."""
        self._arm()
        if self.fault is not None and not self.fault.worker:
            sys.setprofile(self.profiled)
        try:
            yield
        finally:
            sys.settrace(None)
            sys.setprofile(None)
            threading.settrace(None)

    def _arm(self) -> None:
        threading.settrace(self.traced)
        sys.settrace(self.traced)

    def begin_in_worker(self) -> None:
        """In a process that was spawned."""
        self.is_worker = True
        self._arm()
        atexit.register(sys.settrace, None)

    # ---- what Python calls -----------------------------------------------------------------------------------------

    def traced(self, frame: FrameType, event: str, argument: Any) -> Any:
        """A function begins, or goes on after a `yield`."""
        where = where_of(frame.f_code)
        if where is None or event != "call" or self._our_thread():
            return None
        if os.getpid() != self._pid:
            self._pid, self.is_worker, self.raised = os.getpid(), True, False
            self.calls.clear()
        if not begins(frame):
            return None
        if self._counted(str(where)):
            self._raise()
        return None

    def profiled(self, frame: FrameType, event: str, argument: Any) -> None:
        """As `traced`, after the first fault."""
        if event != "call" or not self.raised:
            return
        where = where_of(frame.f_code)
        if where is None or self._our_thread() or not begins(frame):
            return
        key = str(where)
        self.after[key] += 1
        if self.fault is not None and self.fault.second == key and not self.seconds:
            self.seconds += 1
            raise InjectedFault(f"injected second, into {key}")

    def _our_thread(self) -> bool:
        known: dict[int, threading.Thread] = vars(threading)["_active"]
        thread = known.get(threading.get_ident())
        return thread is not None and thread.name.startswith("gpu_doctor")

    def _counted(self, key: str) -> bool:
        """True if this call is the one that raises."""
        fault, number = self.fault, self.calls[key] + 1
        self.calls[key] = number
        if fault is None:
            if self.is_worker and self.folder and number <= MOST_CALLS:
                with (Path(self.folder) / f"calls-{os.getpid()}").open("a") as file:
                    file.write(f"{key}\n")
            return False
        return not self.raised and fault.worker == self.is_worker and (fault.where, fault.number) == (key, number)

    def _raise(self) -> None:
        self.raised = True
        assert self.fault is not None
        if self.folder:
            try:
                os.close(os.open(Path(self.folder) / "raised", os.O_CREAT | os.O_EXCL))
            except FileExistsError:  # the other worker was first
                return
        raise InjectedFault(f"injected into {self.fault.where}")


def join() -> None:
    """A spawned worker does what the folder says."""
    folder = os.environ[FOLDER]
    fault = json.loads((Path(folder) / "fault.json").read_text())
    Injector(None if fault is None else Fault(**fault), folder).begin_in_worker()


class Numbered(TensorDataset):
    """A dataset that spawned workers can import, with this module: it has them do what the folder says."""


class Streamed(IterableDataset[Any]):
    """A stream whose source can be read, and of which every worker gives all rows."""

    def __init__(self, *columns: torch.Tensor) -> None:
        self.columns = columns

    def __iter__(self) -> Iterator[Any]:
        return iter(zip(*self.columns, strict=True))


# ---- one run --------------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """How a loop with a fault ended."""

    seen: Everything | None = None
    """All that the user can see of the run."""
    error: BaseException | None = None
    """What came out of the loop."""
    raised: bool = False
    """The fault came."""
    notes: tuple[str, ...] = ()
    still_on: tuple[str, ...] = ()
    """Wrappers that were on at the loop's end, before the watch's."""
    left: list[str] = field(default_factory=list)
    """What was left behind after the watch."""
    recorded: bool = False
    head: str = ""
    """The last lines of the error's traceback."""
    own_context: bool = False
    """The user's own error has got a context that is none of theirs."""
    after: Counter[str] = field(default_factory=Counter)
    unraisable: list[str] = field(default_factory=list)

    def differences(self, plain: Outcome) -> list[str]:
        """What the user sees otherwise than in a run without us."""
        assert self.seen is not None and plain.seen is not None
        return plain.seen.differences(self.seen)

    @property
    def told(self) -> int:
        """Notes about the fault."""
        return sum("injected" in one for one in self.notes)


def _owners() -> list[Any]:
    """On whose attributes our wrappers stand."""
    from torch.nn import utils
    from torch.utils.data import dataloader
    from torch.utils.data._utils import fetch

    return [
        torch,
        torch.Tensor,
        torch.autograd,
        torch.cuda,
        torch.jit._recursive,
        torch.nn.Module,
        torch.no_grad,
        torch.optim.Optimizer,
        torch.serialization,
        torch.amp.GradScaler,
        utils,
        utils.clip_grad,
        DataLoader,
        dataloader._BaseDataLoaderIter,
        dataloader._DatasetKind,
        fetch._MapDatasetFetcher,
        fetch._IterableDatasetFetcher,
        gc,
    ]


def _hooks() -> int:
    from torch.optim import optimizer

    return len(optimizer._global_optimizer_pre_hooks) + len(optimizer._global_optimizer_post_hooks)


def _ours(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).startswith("gpu_doctor") or type(value).__module__.startswith(
        "gpu_doctor"
    )


class _State:
    """What must be as before when a watch has ended; puts right what is not, so that the next run is judged alone."""

    def __init__(self) -> None:
        self._before = [(owner, dict(vars(owner))) for owner in _owners()]
        self._hooks, self._interval = _hooks(), sys.getswitchinterval()

    def left(self) -> list[str]:
        """What is not as before."""
        from gpu_doctor.capture import patching, record

        found = [f"patch {one}" for one in patching.active()]
        for owner, before in self._before:
            for name, now in list(vars(owner).items()):
                then = before.get(name)
                if now is then or (then is None and not _ours(now)) or not callable(now):
                    continue
                found.append(f"replaced {getattr(owner, '__name__', owner)}.{name}")
                if name in before:
                    setattr(owner, name, then)
                else:
                    delattr(owner, name)
        if _hooks() != self._hooks:
            found.append("hooks of optimizers")
            from torch.optim import optimizer

            optimizer._global_optimizer_pre_hooks.clear()
            optimizer._global_optimizer_post_hooks.clear()
        if sys.getswitchinterval() != self._interval:
            found.append("the switch interval")
            sys.setswitchinterval(self._interval)
        if record._running:
            found.append("a running recorder")
            record._running.clear()
        patching._active.clear()
        return found


def _on_parts(space: dict[str, Any]) -> list[str]:
    """What of ours is left on the cell's own objects."""
    models = [value for value in space.values() if isinstance(value, torch.nn.Module)]
    found = [
        f"{name} on {type(module).__name__}"
        for model in models
        for module in model.modules()
        for name, value in vars(module).items()
        if _ours(value)
    ]
    loaders = [value for value in space.values() if isinstance(value, DataLoader)]
    return found + ["worker_init_fn of the loader" for loader in loaders if _ours(loader.worker_init_fn)]


def _machine(cell: Cell) -> contextlib.AbstractContextManager[object]:
    return SimulatedCuda(SimulatedDevice(real=True)) if cell.on_gpu else contextlib.nullcontext()


@contextmanager
def _notebook(cell: Cell) -> Iterator[dict[str, Any]]:
    """The cell's names, with little data, in a folder of their own; its workers end with it."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        space = notebook(replace(cell, before=0), Path(folder), ROWS)
        try:
            yield space
        finally:
            shut_down(space)
            os.chdir(before)


def _run(cell: Cell, space: dict[str, Any]) -> None:
    exec(compile(cell.code, "<cell>", "exec"), space)


def bare(cell: Cell) -> Outcome:
    """The cell without us."""
    outcome = Outcome()
    with _notebook(cell) as space:
        try:
            with _machine(cell):
                _run(cell, space)
        except BaseException as error:
            if error is not cell.error:
                raise
            outcome.error = error
        return _judged(cell, space, outcome)


def _judged(cell: Cell, space: dict[str, Any], outcome: Outcome) -> Outcome:
    if outcome.error is not None and outcome.error is cell.error:
        outcome.own_context = outcome.error.__context__ is not None or outcome.error.__cause__ is not None
        outcome.error.__traceback__ = None
        outcome.error.__context__ = None
    seen = {name: value for name, value in space.items() if name not in UNSEEN}
    outcome.seen = Everything(seen, identities=False)
    return outcome


def watched(cell: Cell, injector: Injector) -> Outcome:
    """The cell under `gpu_doctor.watch()`, while the injector is on."""
    with _notebook(cell) as space:
        return _watched(cell, space, injector)


def _watched(cell: Cell, space: dict[str, Any], injector: Injector) -> Outcome:
    from gpu_doctor.capture import patching

    state, outcome, folder = _State(), Outcome(), injector.folder
    hook, sys.unraisablehook = sys.unraisablehook, lambda what: outcome.unraisable.append(f"{what.exc_value!r}")
    handle, threading.excepthook = threading.excepthook, lambda what: outcome.unraisable.append(f"{what.exc_value!r}")
    if folder:
        fault = None if injector.fault is None else vars(injector.fault)
        (Path(folder) / "fault.json").write_text(json.dumps(fault))
        os.environ[FOLDER] = folder
    space["watch"] = gpu_doctor.watch
    watch = eval("watch()", space)  # it finds the names of the frame that calls it
    del space["watch"]
    try:
        with _machine(cell), watch, printed(outcome) if cell.workers else contextlib.nullcontext():
            try:
                with injector.on():
                    _run(cell, space)
            finally:
                outcome.still_on = patching.active()
    except BaseException as error:
        outcome.error = error
        outcome.head = "".join(traceback.format_exception(error)[-7:])
    finally:
        sys.unraisablehook, threading.excepthook = hook, handle
        os.environ.pop(FOLDER, None)
    outcome.raised = (Path(folder) / "raised").exists() if folder and injector.fault is not None else injector.raised
    outcome.recorded = watch.recording is not None
    outcome.notes = () if watch.recording is None else watch.recording.notes
    outcome.left = [*state.left(), *_on_parts(space)]
    outcome.after = injector.after
    return _judged(cell, space, outcome)


@contextmanager
def printed(outcome: Outcome) -> Iterator[None]:
    """What workers print of the fault, past Python's own stderr, is found; the rest is printed afterwards."""
    with tempfile.TemporaryFile() as file:
        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(before, 2)
            os.close(before)
            file.seek(0)
            text = file.read().decode(errors="replace")
            said = [line for line in text.splitlines() if line.startswith(f"{__name__}.InjectedFault")]
            outcome.unraisable += said
            if not said:
                os.write(2, text.encode())


def trouble(fault: Fault, outcome: Outcome, plain: Outcome) -> str:
    """What is wrong with how a loop ended; empty = nothing."""
    found = []
    if outcome.error is not plain.error:
        found.append(f"reached the loop: {outcome.error!r}")
    elif differences := outcome.differences(plain):
        found.append(f"spoilt: {differences}")
    if outcome.own_context and not plain.own_context:
        found.append("the user's own error got a context")
    if outcome.left:
        found.append(f"left behind: {', '.join(outcome.left)}")
    if not outcome.recorded:
        found.append("no recording")
    if any(note.startswith(STOPPED) for note in outcome.notes) and outcome.still_on:
        found.append(f"still on after the note: {', '.join(outcome.still_on[:4])} ({len(outcome.still_on)})")
    quiet = fault.worker or fault.where.startswith(QUIET)
    fewest, most = (0, 2) if fault.second else (0, 1) if quiet else (1, 1)
    if outcome.recorded and not fewest <= outcome.told <= most:
        found.append(f"{outcome.told} notes")
    if outcome.unraisable:
        found.append(f"printed: {'; '.join(outcome.unraisable[:3])}")
    return "; ".join(found)


# ---- all of them ----------------------------------------------------------------------------------------------------


@dataclass
class OnPath:
    """The functions on the path of a loop, with how often each was called."""

    here: dict[str, int]
    in_worker: dict[str, int]

    def functions(self) -> set[str]:
        """All of them, by their names."""
        return {*self.here, *self.in_worker}


@contextmanager
def folder_of(cell: Cell) -> Iterator[str]:
    """Where workers write; empty for a loop without any."""
    if not cell.workers:
        yield ""
        return
    with tempfile.TemporaryDirectory() as folder:
        yield folder


def survey(cell: Cell) -> OnPath:
    """Returns which functions of ours are called while the cell runs."""
    with folder_of(cell) as folder:
        injector = Injector(None, folder)
        outcome = watched(cell, injector)
        if outcome.error not in (None, cell.error):
            raise AssertionError(f"The cell fails without a fault: {outcome.error!r}\n{outcome.head}")
        in_worker: Counter[str] = Counter()
        for file in Path(folder).glob("calls-*") if folder else ():
            in_worker |= Counter(file.read_text().splitlines())
    if cell.workers and not in_worker:
        raise AssertionError("Nothing was recorded of its workers.")
    return OnPath(dict(injector.calls), dict(in_worker))


def name_of(key: str) -> str:
    """A function without its line."""
    return key.rpartition(":")[0]


def fenced(key: str) -> bool:
    """Whether an error in it must not reach the loop."""
    name = name_of(key)
    return name not in STAND_INS and name.partition(":")[2] not in STAND_INS


def of_loader(key: str) -> bool:
    """Whether it is the loader's, in the training process."""
    return key.startswith(("capture/taps/dataloader.py", "capture/fetch/", "capture/taps/sources.py"))


def faults_of(cell: Cell, path: OnPath) -> list[Fault]:
    """A fault for every function on the path of a cell: at its first call, or at a later one, by chance."""
    found = []
    for calls, worker in ((path.here, False), (path.in_worker, True)):
        for key, count in sorted(calls.items()):
            if not fenced(key) or (cell.loader_alone and not worker and not of_loader(key)):
                continue
            chance = random.Random(f"{SEED} {cell.code} {key}")
            numbers = [1] if count < 2 else [1, chance.randint(2, max(2, count - 1))]
            found.append(Fault(key, chance.choice(numbers), worker))
    return found


def injected(cell: Cell, fault: Fault) -> Outcome:
    """One run with a fault."""
    with folder_of(cell) as folder:
        return watched(cell, Injector(fault, folder))


def seconds_of(cell: Cell, firsts: Sequence[Fault]) -> list[Fault]:
    """For each of these, a second fault in every function of ours that is called after it."""
    found: list[Fault] = []
    for first in firsts:
        after = injected(cell, first).after
        found += [replace(first, second=key) for key in sorted(after) if fenced(key)]
    return found


@dataclass
class Row:
    """What came of one cell."""

    faults: int = 0
    never: int = 0
    troubles: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By fault: what was wrong, and the traceback's head."""


def swept(cell: Cell, faults: Sequence[Fault]) -> Row:
    """Runs the cell with each of the faults."""
    row = Row()
    with one_thread():
        plain = bare(cell)
        for fault in faults:
            outcome = injected(cell, fault)
            row.never += not outcome.raised
            row.faults += outcome.raised
            wrong = trouble(fault, outcome, plain) if outcome.raised else ""
            if wrong:
                row.troubles[str(fault)] = wrong, outcome.head
    return row


def picked(faults: Sequence[Fault], most: int, seed: int | str = SEED) -> list[Fault]:
    """Some of them, by chance: mostly the same ones where a run has a few functions more or less."""
    return sorted(faults, key=lambda one: random.Random(f"{seed} {one.where}").random())[:most]


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread, so that sums have one order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


if os.environ.get(FOLDER) and getattr(multiprocessing.current_process(), "_inheriting", False):
    join()
