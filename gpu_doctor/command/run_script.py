"""Runs a program under observation: it sees what plain Python would show it, and its end is followed by the result."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final

from gpu_doctor.command import outputs
from gpu_doctor.command.on_import import when_imported
from gpu_doctor.command.program import NoProgram, Program
from gpu_doctor.signals import before_sigterm

if TYPE_CHECKING:
    from gpu_doctor.trials import Watch

INTERRUPTED: Final = 130
"""Exit code of a program that Ctrl-C ended, as shells have it."""
NO_TORCH: Final = "The program did not import torch, so there is nothing to diagnose."
NO_STEP: Final = (
    "No training step was seen: nothing in this process pulled batches from a DataLoader or called optimizer.step()."
)
_OURS: Final = str(Path(__file__).parent)


@dataclass(frozen=True)
class Wanted:
    """What shall be left of the run beside the text on stderr, each the path of a file."""

    save: str | None = None
    """For the recording, or the folder in which each rank of a job leaves its own."""
    json: str | None = None
    """For the diagnosis as data; `-` is the standard output."""
    html: str | None = None
    """For the report as a page."""

    def anchored(self) -> Wanted:
        """The same places wherever the program goes by `os.chdir`."""
        return Wanted(_anchored(self.save), _anchored(self.json), _anchored(self.html))

    @property
    def folder(self) -> str | None:
        """`save`, where it is meant as a folder: it is one, ends in a slash, or this is one rank of several.

        Raises:
            ValueError: if all ranks of a job would write to one file.
        """
        if self.save is None:
            return None
        ranks = _ranks()
        if Path(self.save).is_dir() or self.save.endswith(("/", os.sep)):
            return self.save
        if ranks == 1:
            return None
        if Path(self.save).suffix == ".npz":
            raise ValueError(f"--save {self.save} is one file, and there are {ranks} ranks: name a folder for theirs.")
        return self.save

    def check_ranks(self) -> None:
        """Returns if the ranks of a job, if this is one, do not write over each other's results.

        Raises:
            ValueError: if they do.
        """
        if self.folder is not None and _ranks() > 1 and (self.json or self.html):
            raise ValueError(
                f"--json and --html are of one process: give them to gpudoctor report {self.folder} after the job."
            )


def _anchored(place: str | None) -> str | None:
    if not place or place == outputs.STDOUT:
        return place
    return f"{Path(place).absolute()}{os.sep if place.endswith(('/', os.sep)) else ''}"


def _ranks() -> int:
    """Processes of this job, as its launcher says."""
    said = os.environ.get("WORLD_SIZE", "")
    return max(int(said), 1) if "RANK" in os.environ and said.isdecimal() else 1


def run_script(
    named: str, arguments: Sequence[str] = (), *, is_module: bool = False, wanted: Wanted | None = None
) -> int:
    """Runs a script or module as `python named ...` or `python -m named ...` would, and diagnoses it.

    It is recorded from its first `import torch` on. It takes the place of `__main__` in this process for good.

    Args:
        named: path of the script, or name of the module.
        arguments: for the program.
        is_module: `named` is a module.
        wanted: what to write besides.

    Returns:
        The exit code that the program would have had: 0, that of its `sys.exit`, 1 after an error whose traceback was
        shown, 130 after Ctrl-C.

    Raises:
        NoProgram: if there is no such script or module.
        OSError: if a place cannot be written to, before anything is run.
    """
    wanted = (wanted or Wanted()).anchored()
    outputs.check_places(None if wanted.folder else wanted.save, wanted.json, wanted.html)
    wanted.check_ranks()
    if wanted.folder:
        outputs.make_folder(wanted.folder)
    program = Program(named, arguments, is_module=is_module)
    program.take_place()
    observed = _Observed(program, wanted)
    with before_sigterm(observed.terminated), when_imported("torch", observed.begin):
        error = _executed(program, observed)
    observed.end(error)
    code = _shown(error)
    observed.tell()
    return code


def _executed(program: Program, observed: _Observed) -> BaseException | None:
    """Runs the program; returns the error that ended it, whose traceback begins in the program.

    Raises:
        NoProgram: if there is no such module.
    """
    try:
        code, observed.source = program.code()
        exec(code, program.names)
    except BaseException as error:
        if isinstance(error, NoProgram):
            raise
        return error.with_traceback(_theirs(error.__traceback__))
    return None


def _theirs(trace: TracebackType | None) -> TracebackType | None:
    """A traceback from the first frame on that is not the command's."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    return trace


def _shown(error: BaseException | None) -> int:
    """Tells of the error that ended the program as Python does at its end; returns the exit code."""
    if error is None:
        return 0
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        outputs.say(str(error.code), sys.stderr)
        return 1
    sys.excepthook(type(error), error, error.__traceback__)
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


class _Observed:
    """The recording of a program: begun by its import of torch, ended with it, told on stderr."""

    def __init__(self, program: Program, wanted: Wanted) -> None:
        self._program, self._wanted = program, wanted
        self._watch: Watch | None = None
        self._folder, self._is_rank = wanted.folder, False
        self._pid = os.getpid()
        self._failure = NO_TORCH
        self._stderr = sys.stderr  # the program may put something else in its place
        self.source = ""
        """The program's text."""

    def begin(self) -> None:
        """Begins to record; what fails is told at the end, the program goes on."""
        try:
            from gpu_doctor.trials import Watch

            # A script may say only here that it is a rank, or for its children later that there are some.
            self._folder = self._wanted.folder
            self._is_rank = self._folder is not None and _ranks() > 1
            watch = Watch(self._program.title, self._program.names, self.source, self._folder)
            watch.__enter__()
            self._watch = watch
        except Exception as error:
            self._failure = f"gpu_doctor could not begin to record: {type(error).__name__}: {error}"

    def end(self, error: BaseException | None) -> None:
        """Ends the recording, and takes our frames out of the error's traceback."""
        if self._watch is None or os.getpid() != self._pid:
            return
        trace = None if error is None else error.__traceback__
        self._watch.__exit__(None if error is None else type(error), error, trace)
        if error is not None:
            error.with_traceback(trace)

    def terminated(self) -> None:
        """Ends the recording in the middle of the program, and tells the result."""
        with suppress(Exception):
            self.end(KeyboardInterrupt())
            self.tell()

    def tell(self) -> None:
        """Saves the recording, then writes the result; a process that the program forked has none."""
        if os.getpid() != self._pid:
            return
        with suppress(Exception):  # a pipe that nobody reads any more
            sys.stdout.flush()
        try:
            self._tell()
        except OSError as error:
            outputs.say(f"gpudoctor: {error}", self._stderr)

    def _tell(self) -> None:
        recording = self._watch.recording if self._watch is not None else None
        if recording is None:
            outputs.say(f"gpudoctor: {self._failure}", self._stderr)
            return
        if self._is_rank:
            if os.environ.get("RANK") == "0":
                outputs.say(f"gpudoctor: `gpudoctor report {self._folder}` shows the ranks side by side.", self._stderr)
            return
        if self._folder is None and self._wanted.save is not None:
            recording.save(self._wanted.save)
        from gpu_doctor import report
        from gpu_doctor.diagnosis import judged

        diagnosis, recording = judged(recording)
        if diagnosis is None:
            outputs.say(f"gpudoctor: {recording.notes[-1]}", self._stderr)
            return
        if not len(recording.steps) and not diagnosis.findings:
            outputs.say(f"gpudoctor: {NO_STEP}", self._stderr)
            return
        shown = report.Reported(diagnosis, (recording,), title=self._program.title)
        outputs.write_report(shown, self._wanted.json, self._wanted.html)
        outputs.say("\n" + outputs.emphasized(report.text(shown), self._stderr), self._stderr)
