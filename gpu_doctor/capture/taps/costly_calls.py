"""Times the costly calls besides training: checkpoints, emptied caches and collected garbage, with the user's line.

Each kind is patched at its deepest function alone, to which all names lead, those bound before the run too
(`from torch import save`). A call counts only if it lies inside a step that has ended: what the cell does before its
loop or after it is no part of any step. GPU: no emptied cache was timed on one yet; tested with a stand-in.
"""

from __future__ import annotations

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

SEAMS: Final = {"gc:collect": COLLECT_GARBAGE, "safetensors.torch:serialize_file": CHECKPOINT}
"""`module:function` -> the kind of its calls; a module that nobody else has imported is never imported by us."""
DEVICE_SEAMS: Final = {"torch._C:_cuda_emptyCache": EMPTY_CACHE, "torch._C:_accelerator_emptyCache": EMPTY_CACHE}
"""The same, only where there is a device: every `empty_cache` of torch comes to one of them."""
MOST_PLACES: Final = 256
"""Lines told apart; calls from further ones are counted without a place."""
_NAN: Final = float("nan")

Place: TypeAlias = tuple[str, int, str]
"""File, line, function."""
NOWHERE: Final[Place] = ("", 0, "")


class CallBook:
    """Adds up the calls of the training thread, `begin` to `end` each."""

    def __init__(self, recorder: Recorder) -> None:
        """No call was timed yet."""
        self._recorder, self._log = recorder, recorder.log
        self._inside: set[str] = set()
        self._counted: dict[tuple[str, Place], list[float]] = {}
        """Calls, ns, ns in `other`, bytes: see `Span.calls`."""

    def begin(self, kind: str) -> int | None:
        """A call begins; returns the time for `end`, None if the call is not to be counted."""
        if not self._recorder.mine() or self._recorder.over.is_set() or kind in self._inside:
            return None
        self._inside.add(kind)
        return self._log.clock()

    def end(self, kind: str, begin: int, nbytes: float = _NAN) -> None:
        """The call that began then has returned or raised; `nbytes` as far as that is known."""
        spent = self._log.clock() - begin
        self._inside.discard(kind)
        self._recorder.event(COSTLY, (kind, _users_place(sys._getframe(1)), spent, nbytes))

    def add(self, calls: Mapping[tuple[str, Place], Sequence[float]]) -> None:
        """The calls of a step that has ended; see `Recorder.costly`."""
        for (kind, place), sums in calls.items():
            key = kind, place
            if key not in self._counted and len(self._counted) >= MOST_PLACES:
                key = kind, NOWHERE
            known = self._counted.setdefault(key, [0.0] * len(sums))
            known[:] = [a + b for a, b in zip(known, sums, strict=True)]

    def chores(self) -> tuple[Chore, ...]:
        """The calls inside of ended steps, one chore a kind, dearest first; may be called on any thread."""
        kinds: dict[str, dict[Place, list[float]]] = {}
        for (kind, place), sums in self._counted.copy().items():
            kinds.setdefault(kind, {})[place] = sums
        return tuple(sorted((_chore(kind, places) for kind, places in kinds.items()), key=lambda one: -one.wall_s))


def _chore(kind: str, places: Mapping[Place, Sequence[float]]) -> Chore:
    """All calls of a kind, with the line that makes most of them."""
    (file, line, function), _ = max(places.items(), key=lambda one: tuple(one[1][:2]))
    calls, ns, other_ns, nbytes = (sum(column) for column in zip(*places.values(), strict=True))
    text = linecache.getline(file, line).strip() if file else ""
    return Chore(kind, int(calls), ns * 1e-9, nbytes, file, line, function, text, other_ns * 1e-9)


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
        around = fence.around_in_graphs(
            original, lambda *_, **__: book.begin(kind), lambda begin, _: book.end(kind, begin)
        )
        super().__init__(original, around)
        self._where = where

    def __reduce__(self) -> tuple[Any, ...]:
        return pkgutil.resolve_name, (self._where,)

    def __copy__(self) -> Any:
        return self._original

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._original


def _saving(fence: Fence, book: CallBook, original: Callable[..., Any]) -> Callable[..., Any]:
    """What lies between the opening of the archive that `torch.save` writes and the end of its closing is the call."""

    def open_archive(target: Any) -> Any:
        __tracebackhide__ = True
        begin = None
        try:
            begin = book.begin(CHECKPOINT)
        except Exception as error:
            fence.broke(error)
        if begin is None:
            return original(target)
        closed = partial(_saved, book, begin, target)
        try:
            opened = original(target)
        except BaseException:
            with suppress(Exception):
                closed()
            raise
        return FencedContext(fence, opened, lambda: True, closed)

    return update_wrapper(open_archive, original)


def _saved(book: CallBook, begin: int, target: Any) -> None:
    """The archive was closed; its size is known where the target is a file's name."""
    try:
        nbytes = float(Path(target).stat().st_size) if isinstance(target, str) else _NAN
    except (OSError, ValueError):
        nbytes = _NAN
    book.end(CHECKPOINT, begin, nbytes)


def tap(scope: TapScope) -> None:
    """Patches the seams that are there; a module that is imported later is found when an optimizer first steps."""
    fence, book = scope.recorder.fence, CallBook(scope.recorder)
    scope.recorder.parts["chores"] = book.chores
    scope.recorder.listeners.hear_calls(book.add)
    patched: set[str] = set()

    def patch(_: Any = None) -> None:
        for where, kind in (*SEAMS.items(), *(DEVICE_SEAMS.items() if scope.accelerated else ())):
            module, _, name = where.partition(":")
            owner = sys.modules.get(module)
            if where not in patched and hasattr(owner, name):
                patched.add(where)
                scope.patches.wrap(owner, name, partial(Stand, fence, book, kind, where))

    if hasattr(torch.serialization, "_open_zipfile_writer"):
        scope.patches.wrap(torch.serialization, "_open_zipfile_writer", partial(_saving, fence, book))
    patch()
    scope.optimized.append(patch)
