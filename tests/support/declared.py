"""Whether plain data has the form that a class of the panel's contract declares."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from gpu_doctor.report.contract import Changed, camel


def differences(value: Any, hint: Any, where: str = "state") -> Iterator[str]:
    """Where plain data has not the declared form."""
    origin, inner = get_origin(hint), get_args(hint)
    if is_dataclass(hint) and isinstance(hint, type):
        hints = {camel(one.name): get_type_hints(hint)[one.name] for one in fields(hint)}
        if type(value) is not dict or value.keys() != hints.keys():
            yield f"{where}: {value!r:.80} is no {hint.__name__}"
            return
        for name, one in hints.items():
            yield from differences(value[name], one, f"{where}.{name}")
    elif origin in (Union, types.UnionType):
        found = [list(differences(value, one, where)) for one in inner]
        if all(found):
            yield max((one[0] for one in found), key=lambda said: len(said.partition(":")[0]))  # it came furthest
    elif origin is Literal:
        if value not in inner:
            yield f"{where}: {value!r} is none of {inner}"
    elif origin is tuple:
        each = inner if inner[-1] is not Ellipsis else inner[:1] * len(value or ())
        if type(value) is not list or len(value) != len(each):
            yield f"{where}: {value!r:.80} is no array of {inner}"
            return
        for number, (one, kind) in enumerate(zip(value, each, strict=True)):
            yield from differences(one, kind, f"{where}[{number}]")
    elif origin is not None and issubclass(origin, Mapping):
        if type(value) is not dict or not all(type(one) is str for one in value):
            yield f"{where}: {value!r:.80} is no object"
            return
        for name, one in value.items():
            yield from differences(one, inner[1], f"{where}[{name!r}]")
    elif hint is Changed:
        yield from differences(value, Mapping[str, object], where)
    elif hint is object:
        return
    elif type(value) is not hint and not (hint is float and type(value) is int):
        yield f"{where}: {value!r:.80} is no {hint.__name__}"
    elif hint is float and not isfinite(value):
        yield f"{where} is {value}"
