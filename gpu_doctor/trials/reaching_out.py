"""Refuses a cell that uses the network or starts processes: each side would repeat it, and nothing undoes it.

Found in the text of the cell and of the user's functions that it calls. What no text shows, such as a download of a
library, `side_effects/reach_guard.py` meets in a side; the case remembers it.
"""

from __future__ import annotations

import inspect
import types
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gpu_doctor import formatting
from gpu_doctor.cell import CellSource, Reach, called_names, reaches
from gpu_doctor.trials import allowing
from gpu_doctor.trials.cell_code import source_of
from gpu_doctor.trials.runner import Runner
from gpu_doctor.trials.said_before import Beforehand
from gpu_doctor.trials.snapshot.parts import dict_of, is_users

DEEPEST: Final = 3
"""Deepest chain of the user's functions that is followed from the cell."""


def reaching_out(case: Runner) -> Beforehand:
    """Refuses a cell that starts processes or uses the network, unless it is allowed."""
    found: dict[str, list[str]] = {}
    for place, source, namespace in sources(case):
        for reach in reaches(source, namespace):
            found.setdefault(reach.kind, []).append(_named(reach, place))
    for kind, call in case.reached.items():
        found.setdefault(kind, [call])
    return allowing.said(found, case.allowed)


def _named(reach: Reach, place: str) -> str:
    return f"{formatting.clean(reach.what, 60)} in line {reach.line}{place}"


def sources(case: Runner) -> Iterator[tuple[str, CellSource, Mapping[str, Any]]]:
    """Yields the cell and each user function that it calls: place (` of bot.send()`), text, namespace."""
    own = case.source if isinstance(case.made_of, str) else source_of(case.made_of)
    waiting: list[tuple[str, str, Mapping[str, Any], int]] = [("", own, case.namespace, 0)]
    seen: set[int] = set()
    while waiting:
        place, text, namespace, depth = waiting.pop(0)
        source = CellSource(text)
        yield place, source, namespace
        for names in called_names(source) if depth < DEEPEST else ():
            function, holder = _called(names, namespace)
            if function is None or id(function) in seen or not is_users(function.__module__ or "__main__"):
                continue
            seen.add(id(function))
            space: Mapping[str, Any] = function.__globals__
            if holder is not None and function.__code__.co_argcount:
                space = ChainMap({function.__code__.co_varnames[0]: holder}, function.__globals__)  # its `self`
            waiting.append((f" of {'.'.join(names)}()", source_of(function), space, depth + 1))


def _called(names: Sequence[str], namespace: Mapping[str, Any]) -> tuple[types.FunctionType | None, Any]:
    """Returns the function behind a dotted call, and the object it is a method of; runs no code."""
    value: Any = namespace.get(names[0])
    holder: Any = None
    for name in names[1:]:
        holder, own = value, dict_of(value)
        value = own[name] if name in own else inspect.getattr_static(type(value), name, None)
    if isinstance(value, type):
        value, holder = inspect.getattr_static(value, "__init__", None), None
    elif not inspect.isroutine(value):
        value, holder = inspect.getattr_static(type(value), "__call__", None), value
    if isinstance(value, types.MethodType):
        value, holder = value.__func__, value.__self__
    if isinstance(value, (staticmethod, classmethod)):
        value, holder = value.__func__, None
    return (value, holder) if isinstance(value, types.FunctionType) else (None, None)
