"""Hears the costly calls besides training: checkpoints, emptied caches and collected garbage, with the user's line.

A call is heard at the deepest seam that Python offers, so that names bound before the run (`from torch import save`)
are heard too. It counts only if it lies inside a step that has ended: what the cell does before its loop or after it
is no part of any step. GPU: the emptied cache was not yet heard on one; tested with a stand-in.
"""

from __future__ import annotations

import io
import linecache
import pkgutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeAlias

import torch

from gpu_doctor.capture.lines.places import installed
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.recording.setup import Chore
from gpu_doctor.recording.steps import OTHER

CHECKPOINT: Final = "checkpoint"
EMPTY_CACHE: Final = "empty-cache"
COLLECT_GARBAGE: Final = "collect-garbage"

MOST_PLACES: Final = 256
"""Lines told apart; calls from further ones are counted without a place."""
MOST_OPEN: Final = 4096
"""Calls kept one by one until their step has ended; in a step with more, neighbours are added up."""
_DEEPEST: Final = 200
_NAN: Final = float("nan")
_FILES: Final = (io.BytesIO, io.BufferedWriter, io.BufferedRandom)

Place: TypeAlias = tuple[str, int, str]
"""File, line, function."""
NOWHERE: Final[Place] = ("", 0, "")


class _Heard:
    """A call, or calls of one kind from one place."""

    __slots__ = ("between", "calls", "end_ns", "kind", "nbytes", "ns", "other_ns", "place")

    def __init__(self, kind: str, place: Place, between: tuple[int, int, int]) -> None:
        self.kind, self.place, self.between = kind, place, between
        self.calls = self.ns = self.other_ns = self.end_ns = 0
        self.nbytes = 0.0

    def take(self, other: _Heard) -> None:
        """Adds what another one has."""
        self.calls += other.calls
        self.ns += other.ns
        self.other_ns += other.other_ns
        self.nbytes += other.nbytes


class ChoreBook:
    """Adds up the calls of the training thread; `begin` and `end` are called around each of them."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder, self._clock, self._ledger = recorder, recorder.clock, recorder.ledger
        self._inside: dict[str, int] = {}
        self._counted: dict[tuple[str, Place], _Heard] = {}
        self._open: list[_Heard] = []
        """Calls that no ended step holds yet."""

    def begin(self, kind: str) -> int:
        """A call begins; returns what `end` is to be given: its time, or -1 if the call is not to be counted."""
        if not self._recorder.mine() or not self._ledger.started or self._recorder.over.is_set():
            return -1
        if self._inside.get(kind):
            return -1
        self._inside[kind] = 1
        return self._clock()

    def end(self, kind: str, begin: int, nbytes: float = _NAN) -> None:
        """The call that `begin` began has returned or raised; `nbytes` as far as that is known."""
        if begin < 0:
            return
        now, ledger = self._clock(), self._ledger
        self._inside[kind] = 0
        place = _users_place(sys._getframe(1))
        between = ledger.step_begin, ledger.end_ns, ledger.tail[0] if ledger.tail is not None else 0
        last = self._open[-1] if self._open else None
        full = len(self._open) >= MOST_OPEN
        if last is None or not full or (last.kind, last.place, last.between) != (kind, place, between):
            self._settle()
            last = _Heard(kind, place, between)
            self._open.append(last)
        last.calls += 1
        last.ns += now - begin
        if ledger.phase_now() == OTHER:
            last.other_ns += now - begin
        last.nbytes += nbytes
        last.end_ns = now

    def _settle(self) -> None:
        """Moves what ended steps hold from the list to the sums; a row's end never comes back."""
        done = 0
        for heard in self._open:
            if heard.end_ns > self._ledger.step_begin:
                break
            _add(self._counted, heard)
            done += 1
        del self._open[:done]

    def chores(self) -> tuple[Chore, ...]:
        """What was heard inside of ended steps, one chore a kind, dearest first; may be called on any thread."""
        sums: dict[tuple[str, Place], _Heard] = {}
        ended = self._ledger.step_begin
        for heard in (*self._counted.copy().values(), *(one for one in self._open.copy() if one.end_ns <= ended)):
            _add(sums, heard)
        kinds = {kind: [one for one in sums.values() if one.kind == kind] for kind, _ in sums}
        return tuple(sorted((_chore(kind, heard) for kind, heard in kinds.items()), key=lambda one: -one.wall_s))


def _add(sums: dict[tuple[str, Place], _Heard], heard: _Heard) -> None:
    key = heard.kind, heard.place
    if key not in sums and len(sums) >= MOST_PLACES:
        key = heard.kind, NOWHERE
    if key not in sums:
        sums[key] = _Heard(*key, heard.between)
    sums[key].take(heard)


def _chore(kind: str, heard: list[_Heard]) -> Chore:
    most = max(heard, key=lambda one: (one.calls, one.ns))
    file, line, function = most.place
    return Chore(
        kind=kind,
        calls=sum(one.calls for one in heard),
        wall_s=sum(one.ns for one in heard) * 1e-9,
        nbytes=sum(one.nbytes for one in heard),
        other_s=sum(one.other_ns for one in heard) * 1e-9,
        file=file,
        line=line,
        function=function,
        text=linecache.getline(file, line).strip() if file else "",
    )


def _users_place(frame: FrameType | None) -> Place:
    """The innermost frame outside of installed libraries and of ours."""
    for _ in range(_DEEPEST):
        if frame is None:
            break
        code = frame.f_code
        name = code.co_filename
        if not (installed(name) or name.startswith("<frozen")):
            return name, frame.f_lineno, code.co_name
        frame = frame.f_back
    return NOWHERE


class Stand:
    """Stands in for a function; a copy or a pickle of it is the function itself and needs no gpu_doctor."""

    def __init__(self, book: ChoreBook, kind: str, where: str, original: Callable[..., Any]) -> None:
        """`where` names the function for `pkgutil.resolve_name`, such as `gc:collect`."""
        self._book, self._kind, self._where, self._original = book, kind, where, original
        update_wrapper(self, original)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        begin = self._book.begin(self._kind)
        try:
            return self._original(*args, **kwargs)
        finally:
            self._book.end(self._kind, begin)

    def __reduce__(self) -> tuple[Any, ...]:
        return pkgutil.resolve_name, (self._where,)

    def __copy__(self) -> Any:
        return self._original

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._original

    def __eq__(self, other: object) -> bool:
        return other is self or other is self._original

    def __hash__(self) -> int:
        return hash(self._original)


class OpenedFile:
    """The archive that `torch.save` writes: what lies between its opening and the end of its closing is the call."""

    def __init__(self, book: ChoreBook, target: Any, begin: int, at: float, opened: Any) -> None:
        self._book, self._target, self._begin, self._at, self._opened = book, target, begin, at, opened

    def __enter__(self) -> Any:
        __tracebackhide__ = True
        try:
            return self._opened.__enter__()
        except BaseException:
            self._book.end(CHECKPOINT, self._begin)
            raise

    def __exit__(self, *raised: Any) -> Any:
        __tracebackhide__ = True
        try:
            return self._opened.__exit__(*raised)
        finally:
            self._book.end(CHECKPOINT, self._begin, _written(self._target, self._at))


def _at(target: Any) -> float:
    """Where an open file of the standard library stands; NaN for anything else."""
    if type(target) not in _FILES:
        return _NAN
    try:
        return float(target.tell())
    except (OSError, ValueError):
        return _NAN


def _written(target: Any, before: float) -> float:
    """Bytes that the target has got, NaN where that is not told cheaply."""
    if not isinstance(target, str):
        return _at(target) - before
    try:
        return float(Path(target).stat().st_size)
    except (OSError, ValueError):
        return _NAN


def _saving(book: ChoreBook, original: Callable[..., Any]) -> Callable[..., Any]:
    def open_archive(name_or_buffer: Any) -> Any:
        __tracebackhide__ = True
        begin = book.begin(CHECKPOINT)
        if begin < 0:
            return original(name_or_buffer)
        at = _at(name_or_buffer)
        try:
            opened = original(name_or_buffer)
        except BaseException:
            book.end(CHECKPOINT, begin)
            raise
        return OpenedFile(book, name_or_buffer, begin, at, opened)

    return update_wrapper(open_archive, original)


SEAMS: Final = (
    (CHECKPOINT, "torch.serialization", "_legacy_save"),
    (EMPTY_CACHE, "torch.cuda", "empty_cache"),
    (EMPTY_CACHE, "torch.cuda.memory", "empty_cache"),
    (EMPTY_CACHE, "torch.accelerator", "empty_cache"),
    (EMPTY_CACHE, "torch._C", "_cuda_emptyCache"),
    (EMPTY_CACHE, "torch._C", "_accelerator_emptyCache"),
    (COLLECT_GARBAGE, "gc", "collect"),
    (CHECKPOINT, "safetensors.torch", "save_model"),
    (CHECKPOINT, "safetensors.torch", "save_file"),
    (CHECKPOINT, "safetensors.torch", "serialize_file"),
)
"""Kind, module, function: outer ones for their whole time, inner ones for names bound before; nested calls count once.
safetensors only where it is imported: that is never our doing."""


@contextmanager
def tap(scope: TapScope) -> Iterator[None]:
    """Stand-ins at the seams; modules that are imported later are met when an optimizer first steps."""
    book = ChoreBook(scope.recorder)
    met: set[tuple[str, str]] = set()

    def meet(_: Any = None) -> None:
        for kind, module, name in SEAMS:
            owner = sys.modules.get(module)
            if owner is None or not hasattr(owner, name) or (module, name) in met:
                continue
            met.add((module, name))
            where = f"{module}:{name}"
            scope.patches.wrap(owner, name, lambda one, k=kind, w=where: Stand(book, k, w, one))  # type: ignore[misc]

    if hasattr(torch.serialization, "_open_zipfile_writer"):
        scope.patches.wrap(torch.serialization, "_open_zipfile_writer", lambda one: _saving(book, one))
    meet()
    scope.optimized.append(meet)
    scope.recorder.parts["chores"] = book.chores
    yield
