"""Which names of a model's code hold plain values: numbers, texts, sizes, devices, and what only holds such.

Asked is what the modules of the user's own classes hold, and the globals of the functions of these classes. The text
that reads such a name does not tell whether it is a size or a weight.
"""

from __future__ import annotations

import argparse
import dataclasses
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import torch
from torch import nn

from gpu_doctor.capture.describe.models import OURS
from gpu_doctor.capture.lines.places import installed

_PLAIN: Final = {int, float, complex, bool, str, bytes, type(None), range, torch.device, torch.dtype, torch.Size}
_HOLDERS: Final = (types.SimpleNamespace, argparse.Namespace)
_LONGEST: Final = 64
"""Elements of a container that is looked into: longer ones are data."""
_DEEPEST: Final = 4
_OF_TORCH: Final = frozenset(vars(nn.Module()))


def plain_names(modules: Iterable[nn.Module]) -> frozenset[str]:
    """Names of plain values as code reads them: `SIZE` for a global, `self.size` for what a module holds.

    What is something else in one place is none.

    Args:
        modules: outermost ones.
    """
    plain: dict[str, bool] = {}
    own: dict[type, list[type]] = {}
    for part in {id(one): one for module in modules for one in module.modules()}.values():
        if type(part) not in own:
            own[type(part)] = [kind for kind in type(part).__mro__ if _is_of_the_user(kind)]
        if own[type(part)]:
            _add(plain, "self.", _held(part))
    kinds = dict.fromkeys(kind for kinds in own.values() for kind in kinds)
    spaces = {id(one.__globals__): one.__globals__ for kind in kinds for one in _functions(kind)}
    for kind in kinds:
        _add(plain, "self.", {name: value for name, value in vars(kind).items() if not hasattr(value, "__get__")})
    for space in spaces.values():
        _add(plain, "", space)
    return frozenset(name for name, well in plain.items() if well)


def _add(plain: dict[str, bool], before: str, values: Mapping[str, Any]) -> None:
    for name, value in list(values.items()):
        if not name.startswith("__"):
            plain[before + name] = plain.get(before + name, True) and _is_plain(value)


def _held(part: nn.Module) -> dict[str, Any]:
    inside = vars(part)
    tensors = [name for kind in ("_parameters", "_buffers", "_modules") for name in inside[kind]]
    return {**{name: one for name, one in inside.items() if name not in _OF_TORCH}, **dict.fromkeys(tensors, part)}


def _is_of_the_user(kind: type) -> bool:
    return issubclass(kind, nn.Module) and any(not installed(one.__code__.co_filename) for one in _functions(kind))


def _functions(kind: type) -> Iterator[types.FunctionType]:
    for value in list(vars(kind).values()):
        plain = getattr(value, OURS, value)
        if isinstance(plain, types.FunctionType):
            yield plain


def _is_plain(value: Any, deep: int = 0) -> bool:
    kind = type(value)
    if kind in _PLAIN:
        return True
    if deep == _DEEPEST:
        return False
    if kind in _HOLDERS or dataclasses.is_dataclass(kind):
        value, kind = getattr(value, "__dict__", None), dict
    if type(value) is not kind or kind not in (tuple, list, set, frozenset, dict) or len(value) > _LONGEST:
        return False
    return all(_is_plain(one, deep + 1) for one in tuple(value.values() if kind is dict else value))
