"""The options of the two magics: argparse, with wrong ones answered in one sentence."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from typing import Any, NoReturn

from IPython.core.error import UsageError

from gpu_doctor import knobs
from gpu_doctor.knobs import cell_variables

CELL_FORM = (
    "%%gpudoctor [--steps N] [--seconds S] [--set KNOB=VALUE ...] [--vary NAME=VALUE,VALUE ...] [--name NAME] "
    "[--save PATH] [--no-view]"
)
LINE_FORM = "%gpudoctor check | explain RULE | knobs | report [PATH] | history | compare A B"


class _Parser(argparse.ArgumentParser):
    """Raises UsageError instead of leaving the process."""

    form = ""

    def error(self, message: str) -> NoReturn:
        message = re.sub(r"^argument (\S+): takes ", r"\1 takes ", message)
        raise UsageError(f"{message[:1].upper()}{message[1:]}. Use: {self.form}")


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"takes a whole number of at least 1, such as 50, not {text!r}")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"takes a number of seconds above 0, such as 30, not {text!r}")
    return value


def cell_parser() -> argparse.ArgumentParser:
    """The options of `%%gpudoctor`."""
    parser = _Parser(prog="%%gpudoctor", add_help=False, allow_abbrev=False)
    parser.form = CELL_FORM
    parser.add_argument("--steps", type=_count, metavar="N", help="leave the loop after N steps")
    parser.add_argument("--seconds", type=_seconds, metavar="S", help="leave the loop after S seconds")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KNOB=VALUE", dest="settings", help="turn a knob for this run"
    )
    parser.add_argument(
        "--vary", action="append", default=[], metavar="NAME=VALUE,VALUE", help="offer other values of a cell variable"
    )
    parser.add_argument("--name", default="", help="what the run is called in tables")
    parser.add_argument("--save", default="", metavar="PATH", help="save the recording to PATH (.npz)")
    parser.add_argument("--no-view", action="store_true", help="no live panel, only the result")
    return parser


def parsed_cell_line(line: str) -> argparse.Namespace:
    """The options of one `%%gpudoctor` line, `settings` as a mapping.

    Raises:
        UsageError: one sentence that names the right form.
    """
    options = cell_parser().parse_args(words(line))
    try:
        options.settings = knobs.parse_assignments(options.settings)
        options.vary = cell_variables.parse_variations(options.vary)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return options


def words(line: str) -> list[str]:
    """A magic's line split as a shell would.

    Raises:
        UsageError: if a quotation is not closed.
    """
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(f"The line could not be read ({error}): close the quotation.") from None


def exactly(arguments: Sequence[str], count: int, form: str) -> Sequence[Any]:
    """`arguments` if there are `count` of them.

    Raises:
        UsageError: naming `form` otherwise.
    """
    if len(arguments) != count:
        raise UsageError(f"This takes {count} argument{'' if count == 1 else 's'}. Use: {form}")
    return arguments
