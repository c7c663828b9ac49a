"""What the live panel needs of the kernel's environment, and why there is no panel, in one sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from gpu_doctor import formatting

NEEDS: Final[Mapping[str, str]] = {"ipywidgets": "7.7", "anywidget": "0.9", "bokeh": "3.1"}
"""Package -> the lowest version, as in pyproject.toml: pip only warns where another package asks for an older one."""
FOLLOWS: Final = "The result follows below."


class Lacking(Exception):
    """A package is missing or too old; the message says which, and what to do."""


def check() -> None:
    """Returns if the live panel has what it needs.

    Raises:
        Lacking: if not.
    """
    for package, least in NEEDS.items():
        try:
            found = version(package)
        except PackageNotFoundError:
            raise Lacking(f"this kernel has no {package} ({_install(package)})") from None
        if _numbers(found) < _numbers(least):
            newer = _install(f'"{package}>={least}"')
            raise Lacking(f"{package} {formatting.clean(found, 20)} is too old ({newer})")


def no_panel(error: Exception) -> str:
    """Why no panel is shown."""
    if isinstance(error, Lacking):
        return f"No live panel: {error}. {FOLLOWS}"
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if name in NEEDS:
        return f"No live panel: this kernel has no {name} ({_install(name)}). {FOLLOWS}"
    return f"No live panel ({formatting.raised(error)}). {FOLLOWS}"


def _install(what: str) -> str:
    return f"%pip install {what}, then restart the kernel"


def _numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: (0, 9) of `0.9.0rc1`."""
    return tuple(int(one) for one in re.findall(r"\d+", text)[:2])
