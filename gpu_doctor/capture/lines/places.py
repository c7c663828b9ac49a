"""Which line of the user's code a stack is on: frames of installed libraries fold into the line that called them."""

from __future__ import annotations

import asyncio
import contextlib
import dis
import inspect
import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Final, NamedTuple

import torch

from gpu_doctor.capture.lines.stacks import LOOKED_THROUGH, outwards

_PULLED: Final = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_EVENT_LOOP: Final = str(Path("asyncio", "base_events.py"))
_NEXT: Final = ("__next__", "__anext__")


def _inside(folder: Path | str) -> str:
    """The beginning of every path inside a folder, and of no other: `gpu_doctor_demo.py` lies beside `gpu_doctor`."""
    return f"{Path(folder)}{os.sep}"


_OURS: Final = _inside(Path(__file__).resolve().parents[2])
_TAPS: Final = _inside(Path(__file__).resolve().parents[1])
"""Wrappers of ours stand between the user's frames; others of our frames run the user's code, which ends there."""
_LOOKS: Final = _inside(Path(__file__).resolve().parent)
_LIBRARIES: Final = tuple(
    {_inside(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")} | {_OURS}
)
_INSTALLED: Final = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
_TORCH: Final = _inside(Path(torch.__file__).parent)
_TENSOR: Final = f"{_TORCH}_tensor.py"
_PYTHONIC: Final = ("__iter__", "__len__", "__contains__", "__array__", "__reversed__", "__format__", "__repr__")
"""Functions of torch's tensor that take one apart for Python: a loop over elements is its line's Python, no compute."""


class Place(NamedTuple):
    """A line of the user's code."""

    file: str
    line: int
    function: str
    in_torch: bool
    """Torch's Python lies inside it."""


class Places:
    """Finds the user's line in stacks; remembers which files are the user's."""

    def __init__(self, floor: CodeType | None = None) -> None:
        """Args: floor: code of a frame at which the search ends; None = search the whole stack."""
        self._floor = floor
        self._user: dict[str, bool] = {}
        self._lineless: dict[tuple[CodeType, int], int] = {}

    def of(self, frame: FrameType | None) -> Place | None:
        """The place of the innermost frame that is the user's; None if there is none above the floor.

        Where an event loop waits, it is the line of the user's that waits in it.
        """
        in_torch, floor = False, self._floor
        if frame is not None and _is_ours(frame.f_code.co_filename):
            return None  # the time is ours
        for one in outwards(frame):
            code, name = one.f_code, one.f_code.co_filename
            if code is floor or (name.startswith(_OURS) and not name.startswith(_TAPS)):
                break
            if self._is_user(name, one):
                return Place(name, one.f_lineno or self._led_to(one), code.co_name, in_torch)
            if code.co_name == "run_forever" and name.endswith(_EVENT_LOOP) and (place := self._awaited(one)):
                return place
            in_torch = in_torch or (name.startswith(_TORCH) and not _takes_apart(name, one.f_code.co_name))
        return None

    def before_loop(self, frame: FrameType | None) -> Place | None:
        """As `of`, but None where gpu_doctor works inside of the user's line: it opens the run."""
        for one in outwards(frame):
            name = one.f_code.co_filename
            if self._is_user(name, one):
                return self.of(one)
            if _is_ours(name):
                return None
        return None

    def _awaited(self, event_loop: FrameType) -> Place | None:
        """The user's line that waits in an event loop that runs, by the frame of its `run_forever`."""
        with contextlib.suppress(RuntimeError, TypeError):  # tasks came or went meanwhile
            for task in asyncio.all_tasks(event_loop.f_locals["self"]):
                places = [self.of(frame) for frame in _suspended(task.get_coro())]
                found = [place for place in places if place is not None]
                if found:
                    return found[-1]
        return None

    def generators(self, frame: FrameType | None) -> tuple[Place, ...]:
        """The user's generators and iterators on a stack, innermost first, each by its first line.

        A generator expression is Python of the line that it stands on, and a context manager's function yields to its
        `with` statement: neither is pulled from.
        """
        found = []
        for one in outwards(frame):
            code = one.f_code
            pulled = code.co_flags & _PULLED or code.co_name in _NEXT
            if pulled and code.co_name != "<genexpr>" and self._is_user(code.co_filename, one) and not _is_context(one):
                found.append(Place(code.co_filename, code.co_firstlineno, code.co_name, False))
        return tuple(found)

    def above(self, frame: FrameType | None) -> bool:
        """Whether the stack stands on the floor."""
        return any(one.f_code is self._floor for one in outwards(frame))

    def _led_to(self, frame: FrameType) -> int:
        key = frame.f_code, frame.f_lasti
        found = self._lineless.get(key)
        if found is None:
            found = self._lineless[key] = lineless(*key)
        return found

    def _is_user(self, name: str, frame: FrameType) -> bool:
        known = self._user.get(name)
        if known is None:
            library = installed(name) or _written_by_a_library(frame)
            known = self._user[name] = not library and not name.startswith("<frozen")
        return known


def lineless(code: CodeType, offset: int) -> int:
    """The line that led to an instruction which no line stands for: the jump back at the end of an inner loop.

    What left the loop ran before it: its `break`.
    """
    jumps = (one for one in dis.get_instructions(code) if _target(one) == offset)
    before = next((one.offset for one in jumps if "FOR_ITER" not in one.opname), None)
    if before is not None:
        for begin, end, line in code.co_lines():
            if begin <= before < end and line is not None:
                return line
    return code.co_firstlineno


def _target(instruction: dis.Instruction) -> int | None:
    jumps = instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs
    return instruction.argval if jumps and isinstance(instruction.argval, int) else None


def installed(file: str) -> bool:
    """Whether a file is the standard library's, an installed package's or ours: no code of the user."""
    return file.startswith(_LIBRARIES) or any(one in file for one in _INSTALLED)


def _written_by_a_library(frame: FrameType) -> bool:
    """Whether the frame's module was made by an installed package while it ran (torch's inductor, PyG's layers).

    Such a file lies in the folder for temporary ones, as a notebook's cells do; its module belongs to the package.
    """
    package, dot, _ = str(frame.f_globals.get("__name__", "")).partition(".")
    file = getattr(sys.modules.get(package), "__file__", None) if dot else None
    return isinstance(file, str) and installed(file)


def _takes_apart(file: str, function: str) -> bool:
    return function in _PYTHONIC and file == _TENSOR


def _is_ours(file: str) -> bool:
    """Whether it is gpu_doctor's, other than what looks."""
    return file.startswith(_OURS) and not file.startswith(_LOOKS)


def _suspended(waits: object) -> Iterator[FrameType]:
    """The frames of a coroutine and of what it waits for, outermost first."""
    for _ in range(LOOKED_THROUGH):
        kind = next((one for one in ("cr", "gi", "ag") if hasattr(waits, f"{one}_frame")), None)
        frame = getattr(waits, f"{kind}_frame", None)
        if frame is None:
            return
        yield frame
        waits = getattr(waits, "gi_yieldfrom" if kind == "gi" else f"{kind}_await", None)


def _is_context(frame: FrameType) -> bool:
    """Whether a generator was resumed by a `with` statement."""
    return frame.f_back is not None and frame.f_back.f_code.co_filename.endswith("contextlib.py")
