"""Parses the command line (subcommands and their options) and runs the subcommand."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from gpu_doctor.command import outputs
from gpu_doctor.command.other_package import other_package

if TYPE_CHECKING:
    from gpu_doctor.job import Job

BAD_INPUT: Final = 2
"""Exit code for a wrong command line or bad input."""
_INTERRUPTED: Final = 130


class _Parser(argparse.ArgumentParser):
    """A parser that answers a wrong command line with one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message}. See {self.prog} --help.\n")


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command; the attribute `answer` of its result is the function to call."""
    whole = _Parser(
        prog="gpudoctor",
        description="Explains why a PyTorch training script keeps its GPU waiting.",
        allow_abbrev=False,
    )
    kinds = whole.add_subparsers(required=True, metavar="COMMAND", dest="command", parser_class=_Parser)
    _add_run(kinds)
    report = kinds.add_parser(
        "report", help="show the diagnosis of a saved recording, or the ranks of a job", allow_abbrev=False
    )
    report.add_argument("path", metavar="PATH", help="a file or a folder that --save wrote")
    _add_forms(report)
    report.set_defaults(answer=_report)
    _add_compare(kinds)
    check = kinds.add_parser("check", help="check this machine before any run", allow_abbrev=False)
    check.add_argument("--json", metavar="FILE", help="write the result as JSON to FILE, - for the standard output")
    check.set_defaults(answer=_check)
    explain = kinds.add_parser("explain", help="explain a cause that a diagnosis names", allow_abbrev=False)
    explain.add_argument(
        "cause", metavar="CAUSE", nargs="?", help="such as loader-without-workers; without one, all names"
    )
    explain.set_defaults(answer=_explain)
    return whole


def _add_forms(kind: argparse.ArgumentParser) -> None:
    kind.add_argument("--json", metavar="FILE", help="write the diagnosis as JSON to FILE, - for the standard output")
    kind.add_argument("--html", metavar="FILE", help="write the report to FILE as one self-contained page")


def _add_run(kinds: Any) -> None:
    run = kinds.add_parser(
        "run",
        help="run a script and diagnose its training loop",
        usage="gpudoctor run [options] SCRIPT [ARGUMENTS]\n       gpudoctor run [options] -m MODULE [ARGUMENTS]",
        description="Runs a script as Python would, then writes the diagnosis of its training loop to stderr. The exit "
        "code is the script's own.",
        allow_abbrev=False,
    )
    run.add_argument(
        "--save",
        metavar="FILE",
        help="save the recording to FILE (.npz), for report and compare; for a job of several ranks, to a folder",
    )
    _add_forms(run)
    run.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help="run MODULE, as python -m does")
    run.add_argument("program", metavar="SCRIPT", nargs=argparse.REMAINDER, help="the script and its arguments")
    run.set_defaults(answer=_run)


def _add_compare(kinds: Any) -> None:
    compare = kinds.add_parser(
        "compare",
        help="compare two saved recordings; can fail if the second is proved slower",
        description="Compares the speed of the second recording with the first, with a 95 % interval. Further pairs, "
        "measured in turns, narrow the interval.",
        allow_abbrev=False,
    )
    compare.add_argument("paths", metavar="A B", nargs="+", help="recordings in pairs: A B, or A B A B and so on")
    compare.add_argument(
        "--fail-below", type=float, metavar="RATIO", help="exit with 1 if B is proved slower than RATIO times A"
    )
    compare.add_argument("--json", metavar="FILE", help="write the comparison as JSON to FILE, - for stdout")
    compare.set_defaults(answer=_compare)


def main(line: Sequence[str] | None = None) -> int:
    """Runs one command line.

    Args:
        line: arguments; None for those that the process was started with.

    Returns:
        The exit code: that of a script; 1 for a proved regression, 2 for bad input, 130 after Ctrl-C, else 0.

    Raises:
        SystemExit: The line is --help or cannot be parsed.
    """
    options = parser().parse_args(line)
    if advice := other_package():
        outputs.say(f"gpudoctor: {advice}", sys.stderr)
    try:
        code: int = options.answer(options)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:  # such as `| head`; Python would complain again at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, OSError) as error:
        outputs.say(f"gpudoctor: {error}", sys.stderr)
        return BAD_INPUT
    return code


def _run(options: argparse.Namespace) -> int:
    from gpu_doctor.command.run_script import Destinations, run_script

    is_module = options.module is not None
    words = list(options.module if is_module else options.program)
    if words[:1] == ["--"] and not is_module:
        del words[0]
    if not words:
        raise ValueError("run takes a script or -m MODULE, such as `gpudoctor run train.py --epochs 1`.")
    destinations = Destinations(options.save, options.json, options.html)
    return run_script(words[0], words[1:], is_module=is_module, destinations=destinations)


def _report(options: argparse.Namespace) -> int:
    from gpu_doctor import report
    from gpu_doctor.diagnosis import diagnose
    from gpu_doctor.job import Job, load

    outputs.check_places(options.json, options.html)
    recording = load(options.path)
    if isinstance(recording, Job):
        return _report_job(recording, options)
    shown = report.Reported(diagnose(recording), (recording,), title=recording.name)
    if options.json != outputs.STDOUT:
        outputs.say(outputs.emphasized(report.text(shown), sys.stdout), sys.stdout)
    outputs.write_report(shown, options.json, options.html)
    return 0


def _report_job(job: Job, options: argparse.Namespace) -> int:
    if options.json != outputs.STDOUT:
        outputs.say(str(job), sys.stdout)
    if options.json is not None:
        outputs.write_json(job.to_dict(), options.json)
    if options.html is not None:
        outputs.write_page("ranks", job._repr_html_(), options.html)
    return 0


def _compare(options: argparse.Namespace) -> int:
    from gpu_doctor.command.comparing import compared

    outputs.check_places(options.json)
    found = compared(options.paths, options.fail_below)
    if options.json != outputs.STDOUT:
        outputs.say(str(found), sys.stdout)
    if options.json is not None:
        outputs.write_json(found.to_dict(), options.json)
    return 1 if found.is_regression else 0


def _check(options: argparse.Namespace) -> int:
    from gpu_doctor.machine.checkup.check import check

    outputs.check_places(options.json)
    found = check()
    if options.json != outputs.STDOUT:
        outputs.say(str(found), sys.stdout)
    if options.json is not None:
        outputs.write_json(found.to_dict(), options.json)
    return 0


def _explain(options: argparse.Namespace) -> int:
    from gpu_doctor.diagnosis import every_cause, explain

    if options.cause is None:
        outputs.say("\n".join(f"{cause.name}: {cause.summary}" for cause in every_cause()), sys.stdout)
        return 0
    outputs.say(str(explain(options.cause)), sys.stdout)
    return 0
