"""The two magics: `%%gpudoctor` runs a training cell under diagnosis, `%gpudoctor` answers questions about it."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, kwds, magic_arguments

from gpu_doctor.notebook import completion, early_imports, options

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_MAGIC: Final = "gpudoctor"
WORDS: Final = ("check", "knobs", "explain", "report", "history", "compare", "nsys")
_CELL_HELP: Final = "%%gpudoctor? shows all options, with examples."
_LINE_HELP: Final = "%gpudoctor? lists the words; %%gpudoctor, with two percent signs, diagnoses a cell."
_EXAMPLES: Final = """
Examples, each the first line of a training cell:

  %%gpudoctor
  %%gpudoctor --steps 200 --save run.npz
  %%gpudoctor --set num_workers=4 --set amp=bf16 --name 'four workers'

The cell runs as it would without the magic. A comment in it silences rules: # gpudoctor: ignore RULE because ...
"""
_ANSWERS: Final = """
words:
  check         checks this machine before any run
  knobs         lists the knobs, such as num_workers, and the values that the last cell's loop allows
  explain RULE  explains a rule, such as slow-getitem
  report        shows the last cell's result again
  report PATH   shows the result of a saved recording, or of the folder of a job
  history       lists all runs and trials of the last cell
  compare A B   compares two saved recordings
  nsys          shows the command that runs this notebook under Nsight Systems

The first line of a training cell is %%gpudoctor, with two percent signs: it runs the cell and diagnoses its loop.
%%gpudoctor? shows its options; the Tab key completes options, knobs and rules. In a script: gpu_doctor.watch().
"""


@magics_class
class GpuDoctorMagics(Magics):
    """The magics. Imports that a run needs (torch, bokeh) wait until the first cell runs."""

    @no_var_expand  # here: the cell keeps its line as it is written
    @cell_magic(_MAGIC)
    @magic_arguments(f"%{_MAGIC}")
    @kwds(usage=argparse.SUPPRESS, epilog=_EXAMPLES)
    @argument("--steps", type=options.count, metavar="N", help="end the loop, and the cell, after N steps")
    @argument("--seconds", type=options.seconds, metavar="S", help="end the loop, and the cell, after S seconds")
    @argument(
        "--set",
        action="append",
        default=[],
        metavar="KNOB=VALUE",
        dest="settings",
        help="turn a knob for this run (%%gpudoctor knobs lists them); can be given several times",
    )
    @argument("--trial-steps", type=options.count, metavar="N", help="steps of each side of a trial (50)")
    @argument("--trial-seconds", type=options.seconds, metavar="S", help="seconds that a trial may take (20)")
    @argument("--name", default="", help="name of the run in the panel and in the report")
    @argument("--save", type=options.place, metavar="PATH", help="save the recording to PATH (.npz)")
    @argument(
        "--price",
        type=options.dollars,
        metavar="DOLLARS",
        help="price of the machine per hour: the result says what is lost",
    )
    @argument("--nvtx", action="store_true", help="write steps and phases as NVTX ranges, for Nsight Systems")
    @argument("--no-view", action="store_true", help="no live panel, only the result (nbconvert, papermill)")
    def run_cell(self, line: str, cell: str) -> None:
        """Runs this cell and shows live why its training loop is slow, what that costs, and what to change."""
        __tracebackhide__ = True
        shell = _shell(self)
        options_given = parsed_cell_line(shell.var_expand(line, 2))
        if not cell.strip():
            raise UsageError("The cell is empty: put the training loop below %%gpudoctor.")
        early_imports.finish()
        from gpu_doctor.capture import no_nvtx
        from gpu_doctor.notebook.controller import Controller
        from gpu_doctor.notebook.syntax_errors import as_in_any_cell

        if options_given.nvtx and (reason := no_nvtx()):
            raise UsageError(reason)
        try:
            controller = Controller(shell, line, cell, options_given)
        except SyntaxError as error:
            raise as_in_any_cell(shell, error.with_traceback(None)) from None
        try:
            controller.run()
        except SyntaxError as error:  # of code that the cell runs, such as a module that it imports
            raise as_in_any_cell(shell, error) from None

    @line_magic(_MAGIC)
    @magic_arguments(_MAGIC)
    @kwds(usage=argparse.SUPPRESS, epilog=_ANSWERS)
    @argument("word", metavar="WORD", nargs="?", type=str.lower, choices=WORDS, help=argparse.SUPPRESS)
    @argument("details", nargs="*", help=argparse.SUPPRESS)
    def ask(self, line: str) -> Any:
        """Explains why a training loop is slow, shows it live, and tries cures: %gpudoctor WORD."""
        arguments = options.parsed(self.ask, line, _LINE_HELP)
        if arguments.word is None:
            # Printed, so that it appears wherever the line stands in a cell, such as by mistake above a training loop.
            sys.stdout.write(str(self.ask.__doc__))
            return None
        from gpu_doctor.notebook.line_magic import answer

        return answer(arguments.word, arguments.details)


def parsed_cell_line(line: str) -> argparse.Namespace:
    """Parses the options of a `%%gpudoctor` line; `settings` becomes a mapping.

    Raises:
        UsageError: An option is wrong; the text is one line that says what to write.
    """
    options_given = options.parsed(GpuDoctorMagics.run_cell, line, _CELL_HELP)
    from gpu_doctor.trials import knobs

    try:
        options_given.settings = knobs.parse_assignments(options_given.settings)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return options_given


def _shell(magics: Magics) -> InteractiveShell:
    shell = magics.shell
    assert shell is not None
    return shell


def register(shell: Any) -> None:
    """Adds the magics to a shell, with their tab completion."""
    shell.register_magics(GpuDoctorMagics)
    completion.teach(shell)
    early_imports.begin(shell)


def unregister(shell: Any) -> None:
    """Removes the magics and their tab completion from a shell."""
    completion.forget(shell)
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop(_MAGIC, None)
