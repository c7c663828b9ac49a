"""Puts torch's own functions back into tables that its compiler built while our wrappers were installed.

torch imports its compiler when a process makes its first optimizer. The compiler then builds tables of functions such
as `torch.autograd.backward`, as they are at that moment. With our wrappers in them, it would no longer recognise
torch's own functions, and the tables would keep the run in memory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

_RULES: Final = ("torch._dynamo.trace_rules", "get_torch_obj_rule_map")
"""Function with a table whose keys are functions; a program may have added to it, so the keys are replaced."""
_REBUILT: Final = (
    ("torch._dynamo.variables.torch", "TorchInGraphFunctionVariable._get_handlers"),
    ("torch.overrides", "get_ignored_functions"),
    ("torch.overrides", "get_testing_overrides"),
    ("torch.overrides", "_get_overridable_functions"),
)
"""Functions with tables that torch builds again on the next call, so their caches are cleared."""
_HERE: Final = str(Path(__file__).parents[2]) + os.sep
_PACKAGE: Final = __name__.partition(".")[0] + "."


def watched() -> Callable[[], None]:
    """Returns a function that puts torch's functions back into the tables that are built between now and its call."""
    before = {place for place, _ in _built()}

    def put_back() -> None:
        """Clears each table built since, and puts torch's functions back into the table of rules."""
        for place, table in _built():
            if place in before:
                continue
            if place != _RULES:
                table.cache_clear()
                continue
            rules = table()
            for key in [key for key in rules if _is_ours(key)]:
                rules[_original(key)] = rules.pop(key)

    return put_back


def _built() -> Iterator[tuple[tuple[str, str], Any]]:
    """Yields (module, name) and the cached function of each table that is built, if this torch has it."""
    for place in (_RULES, *_REBUILT):
        found: Any = sys.modules.get(place[0])
        for part in place[1].split("."):
            found = getattr(found, part, None)
        cache_info = getattr(found, "cache_info", None)
        if cache_info is not None and cache_info().currsize:
            yield place, found


def _is_ours(key: Any) -> bool:
    """Returns True if a key is one of our wrappers: a function, or an object that is called like one."""
    code = getattr(key, "__code__", None)
    ours = type(key).__module__.startswith(_PACKAGE) if code is None else code.co_filename.startswith(_HERE)
    return ours and hasattr(key, "__wrapped__")


def _original(key: Any) -> Any:
    """Returns the function under all of our wrappers."""
    while _is_ours(key):
        key = key.__wrapped__
    return key
