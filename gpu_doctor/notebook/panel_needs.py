"""Checks the packages that the live panel needs, and says in one sentence why there is no panel."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from gpu_doctor import formatting

NEEDS: Final[Mapping[str, str]] = {"ipywidgets": "7.7", "anywidget": "0.9", "bokeh": "3.1"}
"""Package -> its lowest version, as in pyproject.toml. An older one may be installed all the same, because pip only
warns if another package requires it."""
FOLLOWS: Final = "The result follows below."


class MissingPackage(Exception):
    """Raised if a package is missing or too old; the message names it and says what to do."""


def check() -> None:
    """Checks that the packages of the live panel are installed in sufficient versions.

    Raises:
        MissingPackage: One of them is missing or too old.
    """
    for package, least in NEEDS.items():
        try:
            found = version(package)
        except PackageNotFoundError:
            raise MissingPackage(f"this kernel has no {package} ({_install(package)})") from None
        if _numbers(found) < _numbers(least):
            newer = _install(f'"{package}>={least}"')
            raise MissingPackage(f"{package} {formatting.clean(found, 20)} is too old ({newer})")


def no_panel(error: Exception) -> str:
    """Returns the sentence that says why no panel is shown.

    Args:
        error: error that opening the panel raised.
    """
    if isinstance(error, MissingPackage):
        return f"No live panel: {error}. {FOLLOWS}"
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if name in NEEDS:
        return f"No live panel: this kernel has no {name} ({_install(name)}). {FOLLOWS}"
    return f"No live panel ({formatting.raised(error)}). {FOLLOWS}"


def _install(package: str) -> str:
    return f"%pip install {package}, then restart the kernel"


def _numbers(text: str) -> tuple[int, ...]:
    """Returns the first two numbers of a version: (0, 9) for `0.9.0rc1`."""
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])
