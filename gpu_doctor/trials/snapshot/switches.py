"""A switch of the process, which belongs to no name: how it is read and how it is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gpu_doctor.trials.snapshot.undo import Undo


class Switch(NamedTuple):
    """One of them."""

    label: str
    """For people."""
    read: Callable[[], Any]
    """Gives what can be compared, and is not changed by what comes."""
    write: Callable[[Any], object]

    def undo(self) -> Undo:
        """What makes it what it is now; nothing is written where it is so still."""
        saved = self.read()
        return lambda: None if self.read() == saved else self.write(saved)


def attribute(label: str, owner: Any, name: str) -> Switch:
    """A switch that is an attribute of something."""
    return Switch(label, lambda: getattr(owner, name), lambda value: setattr(owner, name, value))
