"""Lines of the magics read by their own parsers (IPython's `magic_arguments`), and the values that options take."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError


def parsed(magic: Any, line: str, help_at: str) -> argparse.Namespace:
    """The arguments of a magic's line, split as a shell splits them (IPython's own split keeps the quotes).

    Args:
        magic: a function under `magic_arguments`.
        line: what follows its name.
        help_at: what to read after a line that is not understood.

    Raises:
        UsageError: one line that says what is wrong and where the help is.
    """
    try:
        return magic.parser.parse_args(shlex.split(line))  # type: ignore[no-any-return]
    except ValueError as error:
        raise UsageError(f"The line could not be read ({error}): close the quotation.") from None
    except UsageError as error:
        said = str(error).rstrip(".")
        raise UsageError(f"{said[:1].upper()}{said[1:]}. {help_at}") from None


def count(text: str) -> int:
    """A number of steps."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"takes a whole number of at least 1, such as 50, not {text!r}")
    return value


def seconds(text: str) -> float:
    """A finite span of time."""
    return _above_zero(text, "a number of seconds above 0, such as 30")


def dollars(text: str) -> float:
    """What an hour of a machine costs."""
    return _above_zero(text, "dollars an hour above 0, such as 2.5")


def _above_zero(text: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"takes {what}, not {text!r}")
    return value


def place(text: str) -> Path | None:
    """Where a recording can be saved, None for an empty text; a wrong place is refused here, before a long run."""
    from gpu_doctor.recording import check_place

    if not text:
        return None
    try:
        check_place(path(text))
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return path(text)


def path(text: str) -> Path:
    """A path as typed, `~` read as a shell does."""
    try:
        return Path(text).expanduser()
    except RuntimeError:  # nobody has that name
        return Path(text)
