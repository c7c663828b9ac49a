"""Runs a program under observation, as plain Python would run it, and writes the result after it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
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
"""Exit code of a program that Ctrl-C ended, as in shells."""
NO_TORCH: Final = "The program did not import torch, so there is nothing to diagnose."
NO_STEP: Final = (
    "No training step was seen: nothing in this process pulled batches from a DataLoader or called optimizer.step()."
)
_OURS: Final = str(Path(__file__).parent)


@dataclass(frozen=True)
class Destinations:
    """The files to write besides the text on stderr; None for a file that is not wanted."""

    save: str | None = None
    """Path of the recording, or of the folder in which each rank of a job saves its own."""
    json: str | None = None
    """Path of the diagnosis as JSON; `-` is the standard output."""
    html: str | None = None
    """Path of the report as a page."""

    def absolute(self) -> Destinations:
        """Returns the same places as absolute paths, because the program may call `os.chdir`."""
        return Destinations(_absolute(self.save), _absolute(self.json), _absolute(self.html))

    @property
    def folder(self) -> str | None:
        """The path `save` if it means a folder, else None.

        It means a folder if it is one, if it ends in a slash, or if this process is one rank of several.

        Raises:
            ValueError: All ranks of a job would write to one file.
        """
        if self.save is None:
            return None
        ranks = _ranks()
        if Path(self.save).is_dir() or self.save.endswith(("/", os.sep)):
            return self.save
        if ranks == 1:
            return None
        if Path(self.save).suffix == ".npz":
            raise ValueError(f"--save {self.save} is one file, but there are {ranks} ranks: name a folder for them.")
        return self.save

    def check_ranks(self) -> None:
        """Checks that the ranks of a job do not overwrite each other's results.

        Raises:
            ValueError: They would.
        """
        if self.folder is not None and _ranks() > 1 and (self.json or self.html):
            raise ValueError(
                f"--json and --html serve a single process: give them to gpudoctor report {self.folder} after the job."
            )


def _absolute(place: str | None) -> str | None:
    if not place or place == outputs.STDOUT:
        return place
    return f"{Path(place).absolute()}{os.sep if place.endswith(('/', os.sep)) else ''}"


def _ranks() -> int:
    """Returns the number of ranks of this job, as its launcher sets it; 1 without a launcher."""
    size = os.environ.get("WORLD_SIZE", "")
    return max(int(size), 1) if "RANK" in os.environ and size.isdecimal() else 1


def run_script(
    named: str, arguments: Sequence[str] = (), *, is_module: bool = False, destinations: Destinations | None = None
) -> int:
    """Runs a script or module as `python named ...` or `python -m named ...` would, and diagnoses it.

    The program is recorded from its first `import torch` on. It replaces `__main__` in this process for good.

    Args:
        named: path of the script, or name of the module.
        arguments: arguments of the program.
        is_module: True if `named` is a module.
        destinations: files to write besides the text on stderr; None for none.

    Returns:
        The exit code that the program would have had: 0, that of its `sys.exit`, 1 after an error whose traceback was
        shown, 130 after Ctrl-C.

    Raises:
        NoProgram: There is no such script or module.
        OSError: A file cannot be written; this is checked before anything runs.
    """
    destinations = (destinations or Destinations()).absolute()
    outputs.check_places(None if destinations.folder else destinations.save, destinations.json, destinations.html)
    destinations.check_ranks()
    if destinations.folder:
        outputs.make_folder(destinations.folder)
    program = Program(named, arguments, is_module=is_module)
    program.take_place()
    observed = _Observed(program, destinations)
    with before_sigterm(observed.terminated), when_imported("torch", observed.begin):
        error = _execute(program, observed)
    observed.end(error)
    code = _show_error(error)
    observed.write_result()
    return code


def _execute(program: Program, observed: _Observed) -> BaseException | None:
    """Runs the program; returns the error that ended it, with a traceback that begins in the program, or None.

    Raises:
        NoProgram: There is no such module.
    """
    try:
        code, observed.source = program.code()
        exec(code, program.names)
    except BaseException as error:
        if isinstance(error, NoProgram):
            raise
        return error.with_traceback(_program_frames(error.__traceback__))
    return None


def _program_frames(trace: TracebackType | None) -> TracebackType | None:
    """Returns a traceback without the command's own frames at its start."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    return trace


def _show_error(error: BaseException | None) -> int:
    """Prints the error that ended the program, as Python does; returns the exit code."""
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
    """Records a program from its import of torch to its end, and writes the result to stderr."""

    def __init__(self, program: Program, destinations: Destinations) -> None:
        self._program, self._destinations = program, destinations
        self._watch: Watch | None = None
        self._folder, self._is_rank = destinations.folder, False
        self._pid = os.getpid()
        self._failure = NO_TORCH
        self._stderr = sys.stderr  # the program may replace it
        self.source = ""
        """Text of the program."""

    def begin(self) -> None:
        """Begins to record. If that fails, the program goes on, and the result says so."""
        try:
            from gpu_doctor.trials import Watch

            # Read again: a script may set the variables of a rank only now, or later for its child processes.
            self._folder = self._destinations.folder
            self._is_rank = self._folder is not None and _ranks() > 1
            watch = Watch(self._program.title, self._program.names, self.source, self._folder)
            watch.__enter__()
            self._watch = watch
        except Exception as error:
            self._failure = f"gpu_doctor could not begin to record: {type(error).__name__}: {error}"

    def end(self, error: BaseException | None) -> None:
        """Ends the recording, and removes our frames from the error's traceback."""
        if self._watch is None or os.getpid() != self._pid:
            return
        trace = None if error is None else error.__traceback__
        self._watch.__exit__(None if error is None else type(error), error, trace)
        if error is not None:
            error.with_traceback(trace)

    def terminated(self) -> None:
        """Ends the recording in the middle of the program and writes the result; called on SIGTERM."""
        with suppress(Exception):
            self.end(KeyboardInterrupt())
            self.write_result()

    def write_result(self) -> None:
        """Saves the recording and writes the result; does nothing in a process that the program forked."""
        if os.getpid() != self._pid:
            return
        with suppress(Exception):  # a pipe whose reader is gone
            sys.stdout.flush()
        try:
            self._write_result()
        except OSError as error:
            outputs.say(f"gpudoctor: {error}", self._stderr)

    def _write_result(self) -> None:
        recording = self._watch.recording if self._watch is not None else None
        if recording is None:
            outputs.say(f"gpudoctor: {self._failure}", self._stderr)
            return
        if self._is_rank:
            if os.environ.get("RANK") == "0":
                outputs.say(f"gpudoctor: `gpudoctor report {self._folder}` shows the ranks side by side.", self._stderr)
            return
        if self._folder is None and self._destinations.save is not None:
            self._attempt(partial(recording.save, self._destinations.save))
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
        self._attempt(partial(outputs.write_report, shown, self._destinations.json, None))
        self._attempt(partial(outputs.write_report, shown, None, self._destinations.html))
        outputs.say("\n" + outputs.emphasized(report.text(shown), self._stderr), self._stderr)

    def _attempt(self, write: Callable[[], object]) -> None:
        """Writes one file; if that fails, says why, so that the other files and the diagnosis are not lost."""
        try:
            write()
        except OSError as error:
            outputs.say(f"gpudoctor: {error}", self._stderr)
