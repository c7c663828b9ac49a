"""Times costly calls that are not training (checkpoints, emptied caches, garbage collections) with the user's line.

Each kind is patched only at its deepest function, which every name leads to, even one bound before the run
(`from torch import save`). A call counts only if it lies inside a step that has ended: the code before and after the
loop belongs to no step. GPU: no emptied cache was timed on one yet; tested with a stand-in.
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
"""Patched functions as `module:function`, with the kind of their calls. We never import their modules ourselves."""
DEVICE_SEAMS: Final = {"torch._C:_cuda_emptyCache": EMPTY_CACHE, "torch._C:_accelerator_emptyCache": EMPTY_CACHE}
"""Functions patched only if there is a device: every `empty_cache` of torch calls one of them."""
MOST_PLACES: Final = 256
"""Maximum number of distinct lines; calls from further lines are counted without a place."""
_NAN: Final = float("nan")

Place: TypeAlias = tuple[str, int, str]
"""File, line, function."""
NOWHERE: Final[Place] = ("", 0, "")


class CallBook:
    """Sums of the costly calls on the training thread; each call is timed from `begin` to `end`."""

    def __init__(self, recorder: Recorder) -> None:
        """Begins without calls."""
        self._recorder, self._log = recorder, recorder.log
        self._inside: set[str] = set()
        self._counted: dict[tuple[str, Place], list[float]] = {}
        """Calls, their time in ns, the part of it in the phase `other` in ns, and their bytes: see `Span.calls`."""

    def begin(self, kind: str) -> int | None:
        """Begins a call; returns its start for `end`, in ns, or None if the call is not to be counted."""
        if not self._recorder.mine() or self._recorder.over.is_set() or kind in self._inside:
            return None
        self._inside.add(kind)
        return self._log.clock()

    def end(self, kind: str, begin: int, nbytes: float = _NAN) -> None:
        """Ends the call that began at `begin`, in ns, whether it returned or raised; `nbytes` is NaN if not known."""
        spent = self._log.clock() - begin
        self._inside.discard(kind)
        self._recorder.event(COSTLY, (kind, _users_place(sys._getframe(1)), spent, nbytes))

    def add(self, calls: Mapping[tuple[str, Place], Sequence[float]]) -> None:
        """Adds the calls of a step that has ended; see `Recorder.costly`."""
        for (kind, place), sums in calls.items():
            key = kind, place
            if key not in self._counted and len(self._counted) >= MOST_PLACES:
                key = kind, NOWHERE
            known = self._counted.setdefault(key, [0.0] * len(sums))
            known[:] = [a + b for a, b in zip(known, sums, strict=True)]

    def chores(self) -> tuple[Chore, ...]:
        """Returns the calls inside ended steps as one chore for each kind, the longest first; for any thread."""
        kinds: dict[str, dict[Place, list[float]]] = {}
        for (kind, place), sums in self._counted.copy().items():
            kinds.setdefault(kind, {})[place] = sums
        return tuple(sorted((_chore(kind, places) for kind, places in kinds.items()), key=lambda chore: -chore.wall_s))


def _chore(kind: str, places: Mapping[Place, Sequence[float]]) -> Chore:
    """Sums all calls of a kind, and names the line that makes most of them."""
    (file, line, function), _ = max(places.items(), key=lambda item: tuple(item[1][:2]))
    calls, ns, other_ns, nbytes = (sum(column) for column in zip(*places.values(), strict=True))
    text = linecache.getline(file, line).strip() if file else ""
    return Chore(kind, int(calls), ns * 1e-9, nbytes, file, line, function, text, other_ns * 1e-9)


def _users_place(frame: FrameType | None) -> Place:
    """Returns the place of the innermost frame in the user's code, outside installed libraries and our own."""
    for caller in outwards(frame):
        name = caller.f_code.co_filename
        if not (installed(name) or name.startswith("<frozen")):
            return name, caller.f_lineno, caller.f_code.co_name
    return NOWHERE


class Stand(StandIn):
    """Stand-in that times a function; its copy or pickle is the function itself and does not need gpu_doctor."""

    def __init__(self, fence: Fence, book: CallBook, kind: str, where: str, original: Callable[..., Any]) -> None:
        """Wraps `original`; `where` names it for `pkgutil.resolve_name`, such as `gc:collect`."""
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
    """Wraps the opening of the archive that `torch.save` writes: the call lasts until the archive is closed."""

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
    """Ends the call when the archive is closed; the size is known only if the target is the name of a file."""
    try:
        nbytes = float(Path(target).stat().st_size) if isinstance(target, str) else _NAN
    except (OSError, ValueError):
        nbytes = _NAN
    book.end(CHECKPOINT, begin, nbytes)


def tap(scope: TapScope) -> None:
    """Patches the costly functions of the modules imported so far, and again before an optimizer's first step."""
    fence, book = scope.recorder.fence, CallBook(scope.recorder)
    scope.recorder.parts["chores"] = book.chores
    scope.recorder.listeners.on_calls(book.add)
    patched: set[str] = set()

    def patch(_: Any = None) -> None:
        """Wraps the functions whose modules are imported by now."""
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
