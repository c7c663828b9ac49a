"""Finds the line of the user's code in a stack: frames of installed libraries count for the line that called them."""

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
    """Returns the prefix that only paths inside a folder have: `gpu_doctor_demo.py` may be next to `gpu_doctor`."""
    return f"{Path(folder)}{os.sep}"


_OURS: Final = _inside(Path(__file__).resolve().parents[2])
_TAPS: Final = _inside(Path(__file__).resolve().parents[1])
"""Folder of our wrappers, whose frames are between the user's; at a frame of ours elsewhere, the user's code ends."""
_LOOKS: Final = _inside(Path(__file__).resolve().parent)
_LIBRARIES: Final = tuple(
    {_inside(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")} | {_OURS}
)
_INSTALLED: Final = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
_TORCH: Final = _inside(Path(torch.__file__).parent)
_TENSOR: Final = f"{_TORCH}_tensor.py"
_PYTHONIC: Final = ("__iter__", "__len__", "__contains__", "__array__", "__reversed__", "__format__", "__repr__")
"""Methods with which Python takes a tensor apart: a loop over elements counts as the line's Python, not as torch."""


class Place(NamedTuple):
    """A line of the user's code."""

    file: str
    line: int
    function: str
    in_torch: bool
    """True if the line was running Python code of torch."""


class Places:
    """Finds the user's line in stacks, and remembers which files are the user's."""

    def __init__(self, floor: CodeType | None = None) -> None:
        """`floor`: code of the frame at which the search ends; None = search the whole stack."""
        self._floor = floor
        self._user: dict[str, bool] = {}
        self._lines_before: dict[tuple[CodeType, int], int] = {}

    def of(self, frame: FrameType | None) -> Place | None:
        """Returns the place of the innermost frame of the user's code; None if there is none above the floor.

        If an event loop is waiting, the place is the user's line that waits in it.
        """
        in_torch, floor = False, self._floor
        if frame is not None and _is_ours(frame.f_code.co_filename):
            return None  # the time is ours
        for caller in outwards(frame):
            code, name = caller.f_code, caller.f_code.co_filename
            if code is floor or (name.startswith(_OURS) and not name.startswith(_TAPS)):
                break
            if self._is_user(name, caller):
                return Place(name, caller.f_lineno or self._line_before(caller), code.co_name, in_torch)
            if code.co_name == "run_forever" and name.endswith(_EVENT_LOOP) and (place := self._awaited(caller)):
                return place
            in_torch = in_torch or (name.startswith(_TORCH) and not _takes_apart(name, caller.f_code.co_name))
        return None

    def before_loop(self, frame: FrameType | None) -> Place | None:
        """Returns the same as `of`, but None if gpu_doctor works inside the user's line, as when it opens the run."""
        for caller in outwards(frame):
            name = caller.f_code.co_filename
            if self._is_user(name, caller):
                return self.of(caller)
            if _is_ours(name):
                return None
        return None

    def _awaited(self, event_loop: FrameType) -> Place | None:
        """Returns the user's line that waits in a running event loop; `event_loop`: the frame of its `run_forever`."""
        with contextlib.suppress(RuntimeError, TypeError):  # tasks came or went meanwhile
            for task in asyncio.all_tasks(event_loop.f_locals["self"]):
                places = [self.of(frame) for frame in _suspended(task.get_coro())]
                found = [place for place in places if place is not None]
                if found:
                    return found[-1]
        return None

    def generators(self, frame: FrameType | None) -> tuple[Place, ...]:
        """Returns the user's generators and iterators on a stack, innermost first, each with its first line.

        Generator expressions are left out, as they count as Python of their line, and so are functions of context
        managers, which yield to a `with` statement.
        """
        found = []
        for caller in outwards(frame):
            code = caller.f_code
            pulled = code.co_flags & _PULLED or code.co_name in _NEXT
            if (
                pulled
                and code.co_name != "<genexpr>"
                and self._is_user(code.co_filename, caller)
                and not _is_context(caller)
            ):
                found.append(Place(code.co_filename, code.co_firstlineno, code.co_name, False))
        return tuple(found)

    def above(self, frame: FrameType | None) -> bool:
        """True if the stack contains the floor."""
        return any(caller.f_code is self._floor for caller in outwards(frame))

    def _line_before(self, frame: FrameType) -> int:
        """Returns `line_before` of a frame's present instruction, which is computed once."""
        key = frame.f_code, frame.f_lasti
        found = self._lines_before.get(key)
        if found is None:
            found = self._lines_before[key] = line_before(*key)
        return found

    def _is_user(self, name: str, frame: FrameType) -> bool:
        """True if the file `name` of a frame is the user's; the answer is remembered."""
        known = self._user.get(name)
        if known is None:
            library = installed(name) or _written_by_a_library(frame)
            known = self._user[name] = not library and not name.startswith("<frozen")
        return known


def line_before(code: CodeType, offset: int) -> int:
    """Returns the line that ran before an instruction without a line: the jump back at the end of an inner loop.

    That is the line that left the inner loop, such as its `break`.
    """
    jumps = (jump for jump in dis.get_instructions(code) if _target(jump) == offset)
    before = next((jump.offset for jump in jumps if "FOR_ITER" not in jump.opname), None)
    if before is not None:
        for begin, end, line in code.co_lines():
            if begin <= before < end and line is not None:
                return line
    return code.co_firstlineno


def _target(instruction: dis.Instruction) -> int | None:
    """Returns the offset that an instruction jumps to; None if it is no jump."""
    jumps = instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs
    return instruction.argval if jumps and isinstance(instruction.argval, int) else None


def installed(file: str) -> bool:
    """True if a file belongs to the standard library, an installed package or gpu_doctor, and not to the user."""
    return file.startswith(_LIBRARIES) or any(folder in file for folder in _INSTALLED)


def _written_by_a_library(frame: FrameType) -> bool:
    """True if an installed package generated the frame's module at run time (torch's inductor, PyG's layers).

    Such a file is in the folder for temporary files, as a notebook's cells are; its module belongs to the package.
    """
    package, dot, _ = str(frame.f_globals.get("__name__", "")).partition(".")
    file = getattr(sys.modules.get(package), "__file__", None) if dot else None
    return isinstance(file, str) and installed(file)


def _takes_apart(file: str, function: str) -> bool:
    """True for a method of torch's tensor that takes it apart for Python, see `_PYTHONIC`."""
    return function in _PYTHONIC and file == _TENSOR


def _is_ours(file: str) -> bool:
    """True if a file is gpu_doctor's, except those of the sampling code in this folder."""
    return file.startswith(_OURS) and not file.startswith(_LOOKS)


def _suspended(coroutine: object) -> Iterator[FrameType]:
    """Yields the frames of a suspended coroutine and of everything that it awaits, outermost first."""
    for _ in range(LOOKED_THROUGH):
        kind = next((prefix for prefix in ("cr", "gi", "ag") if hasattr(coroutine, f"{prefix}_frame")), None)
        frame = getattr(coroutine, f"{kind}_frame", None)
        if frame is None:
            return
        yield frame
        coroutine = getattr(coroutine, "gi_yieldfrom" if kind == "gi" else f"{kind}_await", None)


def _is_context(frame: FrameType) -> bool:
    """True if a `with` statement resumed the generator."""
    return frame.f_back is not None and frame.f_back.f_code.co_filename.endswith("contextlib.py")
