"""The options of the two magics: argparse, with wrong ones answered in one sentence."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from IPython.core.error import UsageError

from gpu_doctor import formatting
from gpu_doctor.recording import check_place
from gpu_doctor.report import LABELS
from gpu_doctor.trials import knobs

CELL_FORM = (
    "%%gpudoctor [--steps N] [--seconds S] [--set KNOB=VALUE ...] "
    "[--trial-steps N] [--trial-seconds S] [--name NAME] [--save PATH] [--no-view]"
)
LINE_FORM = "%gpudoctor check | explain RULE | knobs | report [PATH] | history | compare A B"
WORDS: Final = ("check", "explain", "knobs", "report", "history", "compare")
HELP = """\
gpu_doctor tells why a training loop is slow, shows it live, and tries what makes it faster.
  %%gpudoctor               first line of a training cell, two percent signs: runs the cell and diagnoses its loop
  %%gpudoctor?              its options and three examples; the Tab key completes options, knobs and rules
  %gpudoctor check          judges this machine before any run
  %gpudoctor knobs          what can be turned, such as num_workers, and what the last cell's loop allows
  %gpudoctor explain RULE   the page of a rule, such as slow-getitem
  %gpudoctor report [PATH]  the last cell's result again, or that of a saved recording
  %gpudoctor history        all runs and trials of the last cell
  %gpudoctor compare A B    two saved recordings side by side
  gpu_doctor.watch()        the same diagnosis for a loop in a script: with gpu_doctor.watch() as watched: ..."""
"""What `%gpudoctor` alone answers: ten lines."""
EXAMPLES: Final = {
    "--steps": "50",
    "--seconds": "30",
    "--set": "num_workers=4",
    "--trial-steps": "50",
    "--trial-seconds": "20",
    "--name": "tuned",
    "--save": "run.npz",
}
"""An option that takes a value -> such a value."""


class _Parser(argparse.ArgumentParser):
    """Raises UsageError instead of leaving the process."""

    form = ""

    def error(self, message: str) -> NoReturn:
        message = re.sub(r"^argument (\S+): takes ", r"\1 takes ", message)
        lacking = re.match(r"argument (\S+): expected one argument", message)
        if lacking and lacking[1] in EXAMPLES:
            message = f"{lacking[1]} takes a value, such as {lacking[1]} {EXAMPLES[lacking[1]]}"
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
    parser.add_argument("--trial-steps", type=_count, metavar="N", help=LABELS.steps)
    parser.add_argument("--trial-seconds", type=_seconds, metavar="S", help=LABELS.seconds)
    parser.add_argument("--name", default="", help="what the run is called")
    parser.add_argument("--save", default="", metavar="PATH", help="save the recording to PATH (.npz)")
    parser.add_argument("--no-view", action="store_true", help="no live panel, only the result")
    return parser


def parsed_cell_line(line: str) -> argparse.Namespace:
    """The options of one `%%gpudoctor` line, `settings` as a mapping.

    Raises:
        UsageError: one sentence that names the right form.
    """
    options, unknown = cell_parser().parse_known_args(words(line))
    try:
        options.settings = knobs.parse_assignments(_each_its_own(options.settings))
    except ValueError as error:
        raise UsageError(str(error)) from None
    if unknown:
        raise UsageError(_not_understood(unknown))
    options.save = _savable(options.save)
    return options


def _savable(text: str) -> Path | None:
    """The path of a recording, None for none; one that cannot be written is refused here, before a long run.

    Raises:
        UsageError: with the reason.
    """
    if not text:
        return None
    try:
        check_place(path(text))
    except (OSError, ValueError) as error:
        raise UsageError(f"--save: {error}") from None
    return path(text)


def path(text: str) -> Path:
    """A path as typed, `~` read as a shell does."""
    try:
        return Path(text).expanduser()
    except RuntimeError:  # nobody of that name
        return Path(text)


def _each_its_own(settings: list[str]) -> list[str]:
    """The settings, if none holds two.

    Raises:
        ValueError: with the right form.
    """
    for one in settings:
        parts = re.split(r",(?=\w+=)", one)
        if len(parts) > 1:
            raise ValueError(f"Give each knob its own --set: {' '.join(f'--set {part}' for part in parts)}.")
    return settings


def _not_understood(unknown: list[str]) -> str:
    """What to write instead of the first word that is no option: the usual slips by name."""
    word = unknown[0]
    if word in ("-h", "--help"):
        return f"%%gpudoctor? shows what each option does. Use: {CELL_FORM}"
    if word.startswith("#"):
        return "The line of %%gpudoctor takes options only: put the comment on the line below."
    if word.startswith("-"):
        near = formatting.did_you_mean(word.partition("=")[0], [*EXAMPLES, "--no-view"])
        return f"There is no option {word}.{near} Use: {CELL_FORM}"
    if re.match(r"\w+=.", word):
        return f"To turn a knob for this run, write --set {word}."
    if re.search(rf"\b{re.escape(word.lower())}\b", LINE_FORM):
        line = " ".join(unknown)
        return f"Write %gpudoctor {line}, with one percent sign, in a cell of its own: %%gpudoctor runs a cell."
    return f"{word!r} belongs to no option: put quotes around a text with spaces, as in --name 'my run'."


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
        takes = f"{count or 'no'} argument{'s' if count > 1 else ''}"
        raise UsageError(f"This takes {takes}. Use: {form}")
    return arguments
