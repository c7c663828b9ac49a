"""Mutes output that code writes to stream objects stored earlier, past `sys.stdout` and `sys.stderr`.

A handler of `logging` keeps the stream that it was made with, `partial(print, file=sys.stderr)` too: putting others in
the place of the names silences neither.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gpu_doctor.capture import Patches
from gpu_doctor.trials.interrupts import uninterrupted


@contextmanager
def mute_streams() -> Iterator[None]:
    """Mutes both streams of this process, and their present replacements, inside the context."""
    streams = {
        id(stream): stream for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__) if stream is not None
    }
    patches = Patches()
    try:
        for stream in streams.values():
            try:
                patches.wrap(stream, "write", _taking)
            except (AttributeError, TypeError):  # one that takes no attribute
                continue
        yield
    finally:
        with uninterrupted():
            patches.restore()


def _taking(write: Callable[..., Any]) -> Callable[[str], int]:
    return len
