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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial, update_wrapper
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeAlias

import torch

from gpu_doctor.capture.events import COSTLY
from gpu_doctor.capture.fence import Fence, FencedContext
from gpu_doctor.capture.lines.places import installed
from gpu_doctor.capture.lines.stacks import outwards
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.stand_ins import StandIn
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.recording.setup import Chore

CHECKPOINT: Final = "checkpoint"
EMPTY_CACHE: Final = "empty-cache"
COLLECT_GARBAGE: Final = "collect-garbage"

MOST_PLACES: Final = 256
"""Lines told apart; calls from further ones are counted without a place."""
_NAN: Final = float("nan")
_FILES: Final = (io.BytesIO, io.BufferedWriter, io.BufferedRandom)

Place: TypeAlias = tuple[str, int, str]
"""File, line, function."""
NOWHERE: Final[Place] = ("", 0, "")


class CallBook:
    """Adds up the calls of the training thread, `begin` to `end` each; called, it says what was heard so far."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder, self._log = recorder, recorder.log
        self._inside: dict[str, int] = {}
        self._counted: dict[tuple[str, Place], list[float]] = {}
        """Calls, ns, ns in `other`, bytes: see `Span.calls`."""

    def begin(self, kind: str) -> int:
        """A call begins; returns what `end` is to be given: its time, or -1 if the call is not to be counted."""
        if not self._recorder.mine() or self._recorder.over.is_set() or self._inside.get(kind):
            return -1
        now, self._inside[kind] = self._log.clock(), 1
        return now

    def end(self, kind: str, begin: int, nbytes: float = _NAN) -> None:
        """The call that `begin` began has returned or raised; `nbytes` as far as that is known."""
        if begin < 0:
            return
        spent, self._inside[kind] = self._log.clock() - begin, 0
        self._recorder.event(COSTLY, (kind, _users_place(sys._getframe(1)), spent, nbytes))

    def heard(self, calls: Mapping[tuple[str, Place], Sequence[float]]) -> None:
        """The calls of a step that has ended; see `Span.calls`."""
        for (kind, place), sums in calls.items():
            key = kind, place
            if key not in self._counted and len(self._counted) >= MOST_PLACES:
                key = kind, NOWHERE
            known = self._counted.setdefault(key, [0.0] * len(sums))
            known[:] = [a + b for a, b in zip(known, sums, strict=True)]

    def __call__(self) -> tuple[Chore, ...]:
        """What was heard inside of ended steps, one chore a kind, dearest first; may be called on any thread."""
        kinds: dict[str, dict[Place, list[float]]] = {}
        for (kind, place), sums in self._counted.copy().items():
            kinds.setdefault(kind, {})[place] = sums
        return tuple(sorted((_chore(kind, places) for kind, places in kinds.items()), key=lambda one: -one.wall_s))


def book_of(scope: TapScope) -> CallBook:
    """The one book of a run, opened by whichever tap asks first."""
    book = scope.recorder.parts.get("chores")
    if not isinstance(book, CallBook):
        book = scope.recorder.parts["chores"] = CallBook(scope.recorder)
        scope.recorder.listeners.hear_calls(book.heard)
    return book


def _chore(kind: str, places: Mapping[Place, Sequence[float]]) -> Chore:
    (file, line, function), _ = max(places.items(), key=lambda one: tuple(one[1][:2]))
    calls, ns, other_ns, nbytes = (sum(column) for column in zip(*places.values(), strict=True))
    return Chore(
        kind=kind,
        calls=int(calls),
        wall_s=ns * 1e-9,
        nbytes=nbytes,
        other_s=other_ns * 1e-9,
        file=file,
        line=line,
        function=function,
        text=linecache.getline(file, line).strip() if file else "",
    )


def _users_place(frame: FrameType | None) -> Place:
    """The innermost frame outside of installed libraries and of ours."""
    for one in outwards(frame):
        name = one.f_code.co_filename
        if not (installed(name) or name.startswith("<frozen")):
            return name, one.f_lineno, one.f_code.co_name
    return NOWHERE


class Stand(StandIn):
    """Stands in for a function, and times it; a copy or a pickle is the function itself and needs no gpu_doctor."""

    def __init__(self, fence: Fence, book: CallBook, kind: str, where: str, original: Callable[..., Any]) -> None:
        """`where` names the function for `pkgutil.resolve_name`, such as `gc:collect`."""
        super().__init__(original, timed(fence, book, kind, original))
        self._where = where

    def __reduce__(self) -> tuple[Any, ...]:
        return pkgutil.resolve_name, (self._where,)

    def __copy__(self) -> Any:
        return self._original

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._original


def timed(fence: Fence, book: CallBook, kind: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """A call that is one of a kind from its begin to its end."""

    def begins(*args: Any, **kwargs: Any) -> int:
        return book.begin(kind)

    def ends(begin: int, result: Any) -> None:
        book.end(kind, begin)

    return fence.around_in_graphs(original, begins, ends)


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


def _saving(fence: Fence, book: CallBook, original: Callable[..., Any]) -> Callable[..., Any]:
    """What lies between the opening of the archive that `torch.save` writes and the end of its closing is the call."""

    def open_archive(target: Any) -> Any:
        __tracebackhide__ = True
        try:
            begin, at = book.begin(CHECKPOINT), _at(target)
        except Exception as error:
            fence.broke(error)
            return original(target)

        def closed() -> None:
            book.end(CHECKPOINT, begin, _written(target, at))

        try:
            opened = original(target)
        except BaseException:
            with suppress(Exception):
                closed()
            raise
        return FencedContext(fence, opened, lambda: True, closed) if begin >= 0 else opened

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


def tap(scope: TapScope) -> None:
    """Stand-ins at the seams; modules that are imported later are met when an optimizer first steps."""
    book, fence = book_of(scope), scope.recorder.fence
    met: set[tuple[str, str]] = set()

    def meet(_: Any = None) -> None:
        for kind, module, name in SEAMS:
            owner = sys.modules.get(module)
            if owner is None or not hasattr(owner, name) or (module, name) in met:
                continue
            met.add((module, name))
            where = f"{module}:{name}"
            scope.patches.wrap(owner, name, partial(Stand, fence, book, kind, where))

    if hasattr(torch.serialization, "_open_zipfile_writer"):
        scope.patches.wrap(torch.serialization, "_open_zipfile_writer", partial(_saving, fence, book))
    meet()
    scope.optimized.append(meet)
