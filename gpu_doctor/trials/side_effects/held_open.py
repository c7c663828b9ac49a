"""Files behind objects that a snapshot does not enter, such as a `csv.writer`, and archives that are being written."""

from __future__ import annotations

import gc
import io
import logging
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, Final

from gpu_doctor.trials.side_effects.open_things import why_not

DEPTH: Final = 4
"""Steps from an object to its file: a DictWriter's are its dict, its writer, that one's `write`, and the file."""
MOST: Final = 200
"""Objects that are looked at behind one: a few microseconds for each."""
_NOT_ENTERED: Final = (type, types.ModuleType, types.FunctionType, types.FrameType, types.CodeType, str, bytes, int)
_CONTAINERS: Final = (list, dict, tuple, set, frozenset)
_WRITTEN: Final = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom, io.FileIO)
_ARCHIVES: Final[dict[tuple[str, str], Callable[[Any], bool]]] = {
    ("zipfile", "ZipFile"): lambda one: one.fp is not None and one.mode != "r",
    ("tarfile", "TarFile"): lambda one: not one.closed and one.mode != "r",
    ("matplotlib.backends.backend_pdf", "PdfPages"): lambda one: vars(one).get("_file") is not None,
}
"""Module and name of a class -> whether an instance is being written to: it has a table of its own in memory."""


def is_written_archive(value: Any) -> bool:
    """Whether it is one that is open to be written to."""
    try:
        return any(
            _ARCHIVES[part.__module__, part.__qualname__](value)
            for part in type(value).__mro__
            if (part.__module__, part.__qualname__) in _ARCHIVES
        )
    except Exception:
        return False


def files_behind(value: Any) -> Iterator[Any]:
    """Open files that are written to through an object, as far as they can be kept; the object is asked nothing."""
    level, seen = [value], {id(value)}
    for _ in range(DEPTH):
        level = [one for one in gc.get_referents(*level) if not issubclass(type(one), _NOT_ENTERED)]
        level = list({id(one): one for one in level if id(one) not in seen}.values())
        seen.update(map(id, level))
        yield from filter(_can_be_kept, level)
        level = [one for one in level if _is_entered(one)]
        if not level or len(seen) > MOST:
            return


def _is_entered(one: Any) -> bool:
    cls = type(one)  # not `isinstance`, which asks a proxy for what it stands for
    return not issubclass(cls, io.IOBase) and not (cls in _CONTAINERS and len(one) > MOST)


def log_streams() -> Iterator[Any]:
    """Files that handlers of logging were given open."""
    for one in list(getattr(logging, "_handlerList", ())):
        handler = one()
        if isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler):
            stream = getattr(handler, "stream", None)
            if _can_be_kept(stream):
                yield stream


def _can_be_kept(one: Any) -> bool:
    if not issubclass(type(one), _WRITTEN) or any(one is other for other in (sys.stdout, sys.stderr)):
        return False
    try:
        return not one.closed and one.writable() and not why_not(one)
    except Exception:
        return False
