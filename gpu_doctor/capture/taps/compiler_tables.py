"""Puts torch's own functions back into tables that its compiler made while our wrappers stood in their places.

torch imports its compiler when a process makes its first optimizer. The compiler then makes tables of functions such as
`torch.autograd.backward`, as they stand at that moment: it would not know torch's own ones any longer, and the tables
would keep the run in memory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

_RULES: Final = ("torch._dynamo.trace_rules", "get_torch_obj_rule_map")
"""Returns a table whose keys are functions; a program may have added to it."""
_REMADE: Final = (
    ("torch._dynamo.variables.torch", "TorchInGraphFunctionVariable._get_handlers"),
    ("torch.overrides", "get_ignored_functions"),
    ("torch.overrides", "get_testing_overrides"),
    ("torch.overrides", "_get_overridable_functions"),
)
"""Return tables that torch makes again from nothing where they are asked for."""
_HERE: Final = str(Path(__file__).parents[2]) + os.sep
_PACKAGE: Final = __name__.partition(".")[0] + "."


def watched() -> Callable[[], None]:
    """Returns what puts torch's functions back into those tables that are made from now on."""
    before = {name for name, _ in _made()}

    def put_back() -> None:
        for name, made in _made():
            if name in before:
                continue
            if name != _RULES:
                made.cache_clear()
                continue
            rules = made()
            for key in [key for key in rules if _is_ours(key)]:
                rules[_original(key)] = rules.pop(key)

    return put_back


def _made() -> Iterator[tuple[tuple[str, str], Any]]:
    """Yields the cached functions that have made their table; names that this torch lacks are left out."""
    for place in (_RULES, *_REMADE):
        found: Any = sys.modules.get(place[0])
        for part in place[1].split("."):
            found = getattr(found, part, None)
        asked = getattr(found, "cache_info", None)
        if asked is not None and asked().currsize:
            yield place, found


def _is_ours(key: Any) -> bool:
    """Whether a key is one of our wrappers: a function, or an object that is called as one."""
    code = getattr(key, "__code__", None)
    ours = type(key).__module__.startswith(_PACKAGE) if code is None else code.co_filename.startswith(_HERE)
    return ours and hasattr(key, "__wrapped__")


def _original(key: Any) -> Any:
    while _is_ours(key):
        key = key.__wrapped__
    return key
