"""Refuses a cell that draws from an iterator of an earlier cell: drawn items cannot be put back."""

from __future__ import annotations

from typing import Any, Protocol

from gpu_doctor.trials.said_before import Beforehand
from gpu_doctor.trials.used_names import Coded, Reached


class MakesNames(Coded, Protocol):
    """A case that knows which names its own run bound."""

    made: dict[str, int]
    """Names of the namespace that the newest run bound, with the ids of their values."""


def iterators(case: MakesNames) -> Beforehand:
    """Refuses a cell that uses up an iterator of an earlier cell."""
    reached, said = Reached.of(case), []
    for value, name in reached.iterators.values():
        if reached.every_name and case.made.get(name, 0) == id(case.namespace.get(name)):
            continue  # the cell's own run made it, by `%run` or `exec`, and makes it anew in each side
        if getattr(value, "gi_frame", value) is not None:  # else a generator at its end
            said.append(_refusal(name, value, case.namespace.get(name) is not value))
    return Beforehand(tuple(dict.fromkeys(said)))


def _refusal(name: str, value: Any, held: bool) -> str:
    kind = type(value).__name__.strip("_")
    if held:
        return f"`{name}` holds an iterator ({kind}) of an earlier cell: create `{name}` in this cell."
    return f"`{name}` is an iterator ({kind}) of an earlier cell: create it in this cell."
