"""Packs a trial for another machine: the cell, the names it reaches, the baseline run, and the process's state.

It uses torch's own format with cloudpickle inside, so that classes and functions of the notebook are sent by value,
tensors that share memory still do, and a GPU's tensors go to a GPU there. It is sent to the user's own cluster and
nowhere else, and unpacked in memory on arrival: no such data is ever written to a file or read from a file.

It contains the names that the cell reaches. A name that the cell itself binds before it reads it is not sent, so that
objects that cannot be sent (a connection, an open file) can be made inside the cell. The names that functions of
earlier cells read are found when these are packed. Recordings come back as the bytes of the file that `Recording.save`
writes, never as a pickle.
"""

from __future__ import annotations

import io
import platform
import sys
import tempfile
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch.utils.data import DataLoader

from gpu_doctor.formatting import first_line
from gpu_doctor.machine import cuda_devices, usable_cores
from gpu_doctor.recording import Recording, load
from gpu_doctor.trials.cell_reads import Reach, reached
from gpu_doctor.trials.runner import Runner
from gpu_doctor.trials.snapshot.kinds import internal
from gpu_doctor.trials.snapshot.process import number_formats, random_states
from gpu_doctor.trials.used_names import names_in

PROTOCOL: Final = 5
_MARK: Final = "_gpu_doctor_mark"
NOT_PYTHON: Final = (
    "A cluster runs plain Python only, and the cell has a %magic, a !command or a top-level await: move such lines to "
    "another cell."
)


class Unpackable(Exception):
    """Raised if an object of the cell cannot be sent to another machine; the message names it in one sentence."""


class Different(Exception):
    """Raised if versions of a machine differ from the kernel's; the message names them in one sentence."""


@dataclass
class Parcel:
    """The unpacked trial on the other machine, from which a case is made."""

    code: str | Callable[[], Any]
    namespace: dict[str, Any]
    name: str
    run: bytes | None
    """File of the baseline run, from which knobs learn about the loop."""
    process: dict[str, Any]
    allowed: frozenset[str] = frozenset()
    """Permissions given by `allow=`."""

    @property
    def known_run(self) -> Recording | None:
        """Returns the baseline run; None if it trained on a CPU and this process has a GPU: that loop would differ."""
        found = None if self.run is None else of_bytes(self.run)
        elsewhere = found is not None and not found.setup.on_gpu and bool(cuda_devices())
        return None if elsewhere else found

    def enter(self) -> None:
        """Sets this process's random numbers and switches to those of the sending process."""
        switches = self.process["switches"]
        for switch in (*random_states(), *number_formats()):
            if switch.label in switches:  # the torch that packed may lack one
                switch.write(switches[switch.label])
        # As many threads as there: Ray gives each process as many as the first task that it ran asked for cores.
        torch.set_num_threads(max(min(self.process["threads"], int(usable_cores())), 1))
        torch.set_grad_enabled(self.process["grad"])
        for device, state in zip(cuda_devices(), self.process["cuda"], strict=False):
            torch.cuda.set_rng_state(state, device.index)


def pack(case: Runner, pickler: type[Any], most_threads: float | None = None) -> dict[str, Any]:
    """Packs everything that a trial of the case needs elsewhere; the case and its namespace are only read.

    Args:
        case: case to pack.
        pickler: cloudpickle's class, Ray's own copy of it for Ray.
        most_threads: largest number of threads for torch there; None for as many as here.

    Returns:
        The parcel for `unpack`: the contents, and separately the versions that packed them, which are read first.

    Raises:
        Unpackable: An object cannot be sent, or the cell is not plain Python.
    """
    code = case.made_of if callable(case.made_of) else plain(case.source)
    reach = Reach() if callable(code) else reached(code)
    space = case.namespace
    names = {name: space[name] for name in sorted(reach.needed) if name in space and not internal(name, space)}
    for name in sorted(reach.perhaps):
        if name in space and _stuck(space[name], space, reach, pickler) is None:
            names[name] = space[name]
    run = case.baseline
    contents = {
        # Functions of one namespace share their globals on arrival: this one stands for all, and the cell runs there.
        "mark": types.FunctionType((lambda: None).__code__, space, _MARK),
        "names": names,
        "code": code,
        "name": case.name,
        "run": None if run is None else as_bytes(run),
        "process": _process(most_threads),
        "allowed": case.allowed,
        "own": str(space.get("__name__", "__main__")),
    }
    try:
        return {"versions": versions(), "contents": _dumped(contents, space, reach, pickler)}
    except Exception as error:
        raise Unpackable(
            _why(names if isinstance(code, str) else {"the function": code}, space, reach, pickler, error)
        ) from error


def versions() -> dict[str, str]:
    """Returns the versions that must be equal on two machines for their figures to be comparable."""
    return {
        "Python": ".".join(map(str, sys.version_info[:2])),
        "torch": str(torch.__version__).partition("+")[0],
    }


def unpack(sent: Mapping[str, Any]) -> Parcel:
    """Unpacks on the other machine what `pack` returned.

    Raises:
        Different: if this machine has another version of what `versions` names.
        Whatever the user's objects raise when they are made again, such as ModuleNotFoundError.
    """
    here, there = versions(), sent["versions"]
    differing = [name for name in here if here[name] != there[name]]
    if differing:
        ours, theirs = (" and ".join(f"{name} {side[name]}" for name in differing) for side in (here, there))
        raise Different(f"{platform.node()} has {ours}, and the kernel {theirs}: install the same versions on both.")
    contents = torch.load(io.BytesIO(sent["contents"]), map_location=_placed, weights_only=False)
    space: dict[str, Any] = contents["mark"].__globals__
    space.update(contents["names"])
    space["__name__"] = contents["own"]
    names = ("name", "run", "process", "allowed")
    return Parcel(contents["code"], space, *(contents[name] for name in names))


def plain(source: str) -> str:
    """Returns the cell's text without the magic's own line, line numbers kept.

    Raises:
        Unpackable: if it is no plain Python.
    """
    lines = source.splitlines(keepends=True)
    if lines and lines[0].startswith("%%gpudoctor"):
        lines[0] = "\n"
    text = "".join(lines)
    try:
        compile(text, "<cell>", "exec")
    except SyntaxError as error:
        raise Unpackable(NOT_PYTHON) from error
    return text


def _process(most_threads: float | None) -> dict[str, Any]:
    threads = torch.get_num_threads()
    return {
        "switches": {switch.label: switch.read() for switch in (*random_states(), *number_formats())},
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
        "threads": threads if most_threads is None else min(threads, max(int(most_threads), 1)),
        "grad": torch.is_grad_enabled(),
    }


def _dumped(value: Any, space: dict[str, Any], reach: Reach, pickler: type[Any]) -> bytes:
    """Pickles a value in torch's format, without names that the cell binds itself and without loader workers."""

    class Pickler(pickler):  # type: ignore[misc]
        def reducer_override(self, item: Any) -> Any:
            """Reduces a function of the cell without the names that the cell binds, and a loader without workers."""
            reduced = super().reducer_override(item)
            if isinstance(item, types.FunctionType) and item.__globals__ is space and isinstance(reduced, tuple):
                return _without_made(reduced, reach)
            if (
                reduced is NotImplemented
                and isinstance(item, DataLoader)
                and item.__dict__.get("_iterator") is not None
            ):
                return _without_workers(item)
            return reduced

    file = io.BytesIO()
    torch.save(
        value,
        file,
        pickle_module=types.SimpleNamespace(Pickler=Pickler, __name__="cloudpickle"),
        pickle_protocol=PROTOCOL,
    )
    return file.getvalue()


def _without_made(reduced: tuple[Any, ...], reach: Reach) -> tuple[Any, ...]:
    """Reduces a function of the notebook without the globals that the cell makes itself."""
    make, arguments, (own, slots), *rest = reduced
    kept = {
        name: value for name, value in slots["__globals__"].items() if name not in reach.made or name in reach.needed
    }
    return (make, arguments, (own, {**slots, "__globals__": kept}), *rest)


def _without_workers(loader: Any) -> tuple[Any, ...]:
    """Reduces a loader without its persistent workers: the other machine starts its own."""
    make, arguments, state, *rest = loader.__reduce_ex__(PROTOCOL)
    return (make, arguments, {**state, "_iterator": None}, *rest)


def _stuck(value: Any, space: dict[str, Any], reach: Reach, pickler: type[Any]) -> Exception | None:
    """Returns the error that keeps one value from being packed; None if it can be packed."""
    try:
        _dumped(value, space, reach, pickler)
    except Exception as error:
        return error
    return None


def _why(names: dict[str, Any], space: dict[str, Any], reach: Reach, pickler: type[Any], error: Exception) -> str:
    """Returns the sentence that names the variables that cannot be packed, and the object inside that prevents it."""
    tried = dict(names)
    for value in list(names.values()):
        tried |= {name: space[name] for name in _globals_read(value, space, set()) if name not in reach.made}
    stuck = {name: said for name, value in tried.items() if (said := _stuck(value, space, reach, pickler)) is not None}
    data = {name: said for name, said in stuck.items() if not isinstance(tried[name], (types.FunctionType, type))}
    found = data or stuck
    if not found:
        return f"The cell's names cannot be sent to another machine ({first_line(error)})."
    parts = []
    for name, said in found.items():
        kind = _kind(tried[name])
        inner = "" if kind in str(said) else f": {first_line(said)}"
        parts.append(f"`{name}` ({kind}{inner})" if name in space else f"{name} ({first_line(said)})")
    it = "it" if len(parts) == 1 else "them"
    return f"{' and '.join(parts)} cannot be sent to another machine: make {it} inside the cell."


def _globals_read(value: Any, space: dict[str, Any], seen: set[int]) -> set[str]:
    """Returns the names that a function or class of the namespace reads, through other such functions too."""
    if id(value) in seen:
        return set()
    seen.add(id(value))
    if isinstance(value, type):
        functions = [function for function in vars(value).values() if isinstance(function, types.FunctionType)]
        return set().union(*(_globals_read(function, space, seen) for function in functions))
    if not isinstance(value, types.FunctionType):
        return _globals_read(type(value), space, seen) if type(value) in space.values() else set()
    if value.__globals__ is not space:
        return set()
    found = set(names_in(value.__code__)) & space.keys()
    return found.union(*(_globals_read(space[name], space, seen) for name in found))


def _kind(value: Any) -> str:
    cls = type(value)
    module = "" if cls.__module__ in ("builtins", "__main__") else f"{cls.__module__}."
    return f"{module}{cls.__qualname__}"


def _placed(storage: Any, location: str) -> Any:
    """Places a tensor on arrival: the number of a GPU means something only on the machine it came from."""
    if location.startswith("cuda") and int(location.partition(":")[2] or 0) >= torch.cuda.device_count() > 0:
        location = "cuda:0"
    restore: Any = torch.serialization.default_restore_location
    return restore(storage, location)


def as_bytes(recording: Recording) -> bytes:
    """Returns the bytes of a recording's file."""
    with tempfile.TemporaryDirectory(prefix="gpu_doctor-") as folder:
        return recording.save(Path(folder) / "run.npz").read_bytes()


def of_bytes(file: bytes) -> Recording:
    """Loads a recording from the bytes of its file.

    Raises:
        RecordingError: if the bytes are damaged or come from a newer gpu_doctor.
    """
    with tempfile.TemporaryDirectory(prefix="gpu_doctor-") as folder:
        path = Path(folder) / "run.npz"
        path.write_bytes(file)
        return load(path)
