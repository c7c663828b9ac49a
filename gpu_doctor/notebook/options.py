"""Parses the lines of the magics (with IPython's `magic_arguments`) and the values of their options."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError


def parsed(magic: Any, line: str, help_at: str) -> argparse.Namespace:
    """Parses the arguments of a magic's line, split as a shell does (IPython's own split keeps the quotes).

    Args:
        magic: function decorated with `magic_arguments`.
        line: text after the magic's name.
        help_at: sentence that says where the help is, appended to an error.

    Raises:
        UsageError: The line is wrong; the text is one line that says what is wrong and where the help is.
    """
    try:
        return magic.parser.parse_args(shlex.split(line))  # type: ignore[no-any-return]
    except ValueError as error:
        raise UsageError(f"The line could not be read ({error}): close the quotation.") from None
    except UsageError as error:
        problem = str(error).rstrip(".")
        raise UsageError(f"{problem[:1].upper()}{problem[1:]}. {help_at}") from None


def count(text: str) -> int:
    """Parses a number of steps."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"takes a whole number of at least 1, such as 50, not {text!r}")
    return value


def seconds(text: str) -> float:
    """Parses a finite time in seconds."""
    return _above_zero(text, "a number of seconds above 0, such as 30")


def dollars(text: str) -> float:
    """Parses the price of a machine in dollars per hour."""
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
    """Parses the path to save a recording to; None for an empty text. A wrong path is refused before a long run."""
    from gpu_doctor.recording import check_place

    if not text:
        return None
    try:
        check_place(path(text))
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return path(text)


def path(text: str) -> Path:
    """Parses a path and expands `~` as a shell does."""
    try:
        return Path(text).expanduser()
    except RuntimeError:  # there is no user of that name
        return Path(text)
