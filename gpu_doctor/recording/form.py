"""Whether what a file gave has the form of a recording: types of plain fields, lengths of columns.

Files are copied, mailed and edited. What is not of this form would be found out by a rule or a plot, in words about
numpy. Told apart are texts, numbers, groups and nothing: whether a number is whole is no matter for a reader.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import numpy as np

from gpu_doctor.recording import Recording
from gpu_doctor.steps import STEP_COLUMNS

_HINTS: Final[dict[type[Any], dict[str, Any]]] = {}
"""By type: what its fields are to be."""


def check(recording: Recording) -> Recording:
    """Lets it pass.

    Raises:
        ValueError: if it has another form; the message names the field.
    """
    steps = recording.steps
    _alike("steps", *(getattr(steps, name) for name in STEP_COLUMNS))
    if np.any(steps.count < 0):
        raise ValueError("steps.count")
    for one in recording.series:
        _alike("series", one.times_s, one.values)
    losses = recording.losses
    _alike("losses", losses.step, losses.samples, losses.value)
    for fetch in recording.fetches:
        _alike("fetches", fetch.walls_s)
    _check_fields(recording)
    return recording


def _alike(name: str, *columns: Any) -> None:
    """Columns of numbers, of one length."""
    if any(one.ndim != 1 or one.dtype.kind not in "fiub" for one in columns) or len({len(one) for one in columns}) > 1:
        raise ValueError(name)


def _check_fields(one: Any) -> None:
    for name, hint in _fields(type(one)).items():
        if not _fits(getattr(one, name), hint):
            raise ValueError(f"{type(one).__name__}.{name}")


def _fields(kind: type[Any]) -> dict[str, Any]:
    if kind not in _HINTS:
        hints = get_type_hints(kind)
        _HINTS[kind] = {item.name: hints[item.name] for item in dataclasses.fields(kind)}
    return _HINTS[kind]


def _fits(value: Any, hint: Any) -> bool:
    if hint is Any or isinstance(value, np.ndarray):
        return True
    origin, of = get_origin(hint), get_args(hint)
    if origin in (types.UnionType, Union):
        return any(_fits(value, one) for one in of)
    if origin is tuple:  # a list where JSON has made one
        each = of[0] if of[-1] is Ellipsis else Union[of]  # noqa: UP007
        return isinstance(value, (tuple, list)) and all(_fits(one, each) for one in value)
    if origin is not None:  # a mapping; settings may hold what any cell's literals do
        plain = of[-1] in (str, int, float)
        return isinstance(value, Mapping) and (not plain or all(_fits(one, of[-1]) for one in value.values()))
    if hint in (int, float, bool):
        return isinstance(value, (int, float))
    if not isinstance(value, hint):
        return False
    if dataclasses.is_dataclass(value):
        _check_fields(value)
    return True
