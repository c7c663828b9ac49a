"""The only room that knows Jupyter: the magics, the live widget and its page.

Knows every room below and is known by none: it asks trials for runs and report for what to show.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gpu_doctor.notebook.magic import register as register
    from gpu_doctor.notebook.magic import unregister as unregister

__all__ = [
    "register",
    "unregister",
]

# Name -> where it stands: loaded when it is first used, so that nobody loads what somebody else asks for.
_FACE: Final = {
    "register": "magic",
    "unregister": "magic",
}


def __getattr__(name: str) -> Any:
    if name not in _FACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_FACE[name]}"), name)
