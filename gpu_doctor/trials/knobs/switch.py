"""Turns a switch of torch for a while, and tells of code that sets it to something else meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gpu_doctor.trials.knobs.knob import TrialScope


@contextmanager
def switched_to(
    value: Any, read: Callable[[], Any], write: Callable[[Any], None], knob: str, scope: TrialScope
) -> Iterator[None]:
    """A switch has a value while the context lasts, and is put back.

    Args:
        value: of the switch.
        read: tells it.
        write: sets it.
        knob: whose switch it is.
        scope: gets a note where the code sets another value meanwhile.
    """
    before = read()
    try:
        write(value)
        yield
    finally:
        if read() != value:
            scope.notes.append(f"{knob}: the code replaced the trial's setting with its own.")
        write(before)
