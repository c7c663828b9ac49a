"""Sets a switch of torch for a while, and notes if the code sets it to another value meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gpu_doctor.trials.knobs.knob import TrialScope


@contextmanager
def switched_to(
    value: Any, read: Callable[[], Any], write: Callable[[Any], None], knob: str, scope: TrialScope
) -> Iterator[None]:
    """Sets a switch inside the context, and puts it back at the end.

    Args:
        value: value to set.
        read: returns the present value.
        write: sets a value.
        knob: name of the knob.
        scope: receives a note if the code sets another value meanwhile.
    """
    before = read()
    try:
        write(value)
        yield
    finally:
        if read() != value:
            scope.notes.append(f"{knob}: the code replaced the trial's setting with its own.")
        write(before)
