"""The command's line: subcommands, their options, and what each answers."""

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
"""Exit code where the line cannot be answered."""
_INTERRUPTED: Final = 130


class _Parser(argparse.ArgumentParser):
    """Answers a line that cannot be parsed in one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message}. See {self.prog} --help.\n")


def parser() -> argparse.ArgumentParser:
    """The command's parser; `answer` of what it parses names the function that answers."""
    whole = _Parser(
        prog="gpudoctor",
        description="Tells why a PyTorch training script keeps its GPU waiting.",
        allow_abbrev=False,
    )
    kinds = whole.add_subparsers(required=True, metavar="COMMAND", dest="command", parser_class=_Parser)
    _add_run(kinds)
    report = kinds.add_parser(
        "report", help="the diagnosis of a saved recording, or the ranks of a job", allow_abbrev=False
    )
    report.add_argument("path", metavar="PATH", help="a file or a folder that --save wrote")
    _add_forms(report)
    report.set_defaults(answer=_report)
    _add_compare(kinds)
    check = kinds.add_parser("check", help="judge this machine before any run", allow_abbrev=False)
    check.add_argument("--json", metavar="FILE", help="write the lines as JSON to FILE, - for the standard output")
    check.set_defaults(answer=_check)
    explain = kinds.add_parser("explain", help="the page of a cause that a diagnosis names", allow_abbrev=False)
    explain.add_argument("cause", metavar="CAUSE", help="such as loader-without-workers")
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
        description="Runs a script as Python would, then writes to stderr what its training loop waits for. The exit "
        "code is the script's own.",
        allow_abbrev=False,
    )
    run.add_argument(
        "--save",
        metavar="FILE",
        help="save the recording to FILE (.npz), for report and compare; each rank of a job to a folder",
    )
    _add_forms(run)
    run.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help="run MODULE, as python -m does")
    run.add_argument("program", metavar="SCRIPT", nargs=argparse.REMAINDER, help="the script, and its own arguments")
    run.set_defaults(answer=_run)


def _add_compare(kinds: Any) -> None:
    compare = kinds.add_parser(
        "compare",
        help="two saved recordings; fails where the second is proved slower",
        description="The speed of the second recording over the first's, with its 95 % interval. Further pairs, "
        "measured in turns, narrow it.",
        allow_abbrev=False,
    )
    compare.add_argument("paths", metavar="A B", nargs="+", help="recordings in pairs: A B, or A B A B and so on")
    compare.add_argument(
        "--fail-below", type=float, metavar="RATIO", help="exit with 1 where B is proved slower than RATIO times A"
    )
    compare.add_argument("--json", metavar="FILE", help="write the comparison as JSON to FILE, - for stdout")
    compare.set_defaults(answer=_compare)


def main(line: Sequence[str] | None = None) -> int:
    """Answers one line.

    Args:
        line: its words; None = those that the process was started with.

    Returns:
        The exit code: of a script its own; 1 for a proved regression, 2 for bad input, 130 after Ctrl-C, else 0.

    Raises:
        SystemExit: after --help, and for a line that cannot be parsed.
    """
    given = parser().parse_args(line)
    if advice := other_package():
        outputs.say(f"gpudoctor: {advice}", sys.stderr)
    try:
        code: int = given.answer(given)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:  # such as `| head`; Python would complain again at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, OSError) as error:
        outputs.say(f"gpudoctor: {error}", sys.stderr)
        return BAD_INPUT
    return code


def _run(given: argparse.Namespace) -> int:
    from gpu_doctor.command.run_script import Wanted, run_script

    is_module = given.module is not None
    words = list(given.module if is_module else given.program)
    if words[:1] == ["--"] and not is_module:
        del words[0]
    if not words:
        raise ValueError("run takes a script or -m MODULE, such as `gpudoctor run train.py --epochs 1`.")
    return run_script(words[0], words[1:], is_module=is_module, wanted=Wanted(given.save, given.json, given.html))


def _report(given: argparse.Namespace) -> int:
    from gpu_doctor import report
    from gpu_doctor.diagnosis import diagnose
    from gpu_doctor.job import Job, load

    outputs.check_places(given.json, given.html)
    recording = load(given.path)
    if isinstance(recording, Job):
        return _report_job(recording, given)
    shown = report.Reported(diagnose(recording), (recording,), title=recording.name)
    if given.json != outputs.STDOUT:
        outputs.say(outputs.emphasized(report.text(shown), sys.stdout), sys.stdout)
    outputs.write_report(shown, given.json, given.html)
    return 0


def _report_job(job: Job, given: argparse.Namespace) -> int:
    if given.json != outputs.STDOUT:
        outputs.say(str(job), sys.stdout)
    if given.json is not None:
        outputs.write_json(job.to_dict(), given.json)
    if given.html is not None:
        outputs.write_page("ranks", job._repr_html_(), given.html)
    return 0


def _compare(given: argparse.Namespace) -> int:
    from gpu_doctor.command.comparing import compared

    outputs.check_places(given.json)
    found = compared(given.paths, given.fail_below)
    if given.json != outputs.STDOUT:
        outputs.say(str(found), sys.stdout)
    if given.json is not None:
        outputs.write_json(found.to_dict(), given.json)
    return 1 if found.is_regression else 0


def _check(given: argparse.Namespace) -> int:
    from gpu_doctor.machine.checkup.check import check

    outputs.check_places(given.json)
    found = check()
    if given.json != outputs.STDOUT:
        outputs.say(str(found), sys.stdout)
    if given.json is not None:
        outputs.write_json(found.to_dict(), given.json)
    return 0


def _explain(given: argparse.Namespace) -> int:
    from gpu_doctor.diagnosis import explain

    outputs.say(str(explain(given.cause)), sys.stdout)
    return 0
