"""The two magics: `%%gpudoctor` runs a training cell under diagnosis, `%gpudoctor` asks what is known already."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand

from gpu_doctor.notebook import completion, early_imports

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_MAGIC: Final = "gpudoctor"


@magics_class
class GpuDoctorMagics(Magics):
    """Thin on purpose: what a run needs (torch, bokeh) is imported when the first cell runs."""

    @no_var_expand  # here: the cell keeps its line as it is written
    @cell_magic(_MAGIC)
    def run_cell(self, line: str, cell: str) -> None:
        """Runs this cell's training loop and tells why the GPU idles: live, with a price and a cure.

        %%gpudoctor [--steps N] [--seconds S] [--set KNOB=VALUE ...]
                    [--trial-steps N] [--trial-seconds S] [--name NAME] [--save PATH] [--no-view]

        --steps N           leave the loop after N steps (what follows the loop is then not run)
        --seconds S         leave the loop after S seconds
        --set KNOB=VALUE    turn a knob for this run, such as --set num_workers=4 (%gpudoctor knobs lists them)
        --trial-steps N     steps of each side of a trial of this cell (50), warm-up included
        --trial-seconds S   seconds of such a trial, in which its pairs of runs must end (20)
        --name NAME         what the run is called, in the panel and in the report
        --save PATH         save the recording to PATH (.npz), to be read with gpu_doctor.load
        --no-view           no live panel, only the result (nbconvert, papermill, scripts)

        Examples, each the first line of a training cell:

        %%gpudoctor
        %%gpudoctor --steps 200 --save run.npz
        %%gpudoctor --set num_workers=4 --set amp=bf16 --name tuned

        The cell runs as it would without the magic. `# gpudoctor: ignore RULE, RULE because ...` in it silences rules.
        """
        __tracebackhide__ = True
        from gpu_doctor.notebook.options import parsed_cell_line

        shell = _shell(self)
        options = parsed_cell_line(shell.var_expand(line, 2))
        if not cell.strip():
            raise UsageError("The cell is empty: put the training loop below %%gpudoctor.")
        early_imports.finish()
        from gpu_doctor.notebook.controller import Controller
        from gpu_doctor.notebook.syntax_errors import as_in_any_cell

        try:
            controller = Controller(shell, line, cell, options)
        except SyntaxError as error:
            raise as_in_any_cell(shell, error.with_traceback(None)) from None
        try:
            controller.run()
        except SyntaxError as error:  # of code that the cell runs, such as a module that it imports
            raise as_in_any_cell(shell, error) from None

    @line_magic(_MAGIC)
    def ask(self, line: str) -> Any:
        """Asks what gpu_doctor knows.

        %gpudoctor                  what it can do, in ten lines
        %gpudoctor check            judge the machine before any run
        %gpudoctor explain RULE     the page of a rule
        %gpudoctor knobs            what can be turned, and what the last cell's loop allows
        %gpudoctor report [PATH]    the last cell's result again, or that of a saved recording
        %gpudoctor history          all runs and trials of the last cell
        %gpudoctor compare A B      two saved recordings side by side
        """
        from gpu_doctor.notebook.options import HELP

        if not line.strip():
            # Written, so that it is seen wherever in a cell it stands, such as by a slip above a training loop.
            sys.stdout.write(f"{HELP}\n")
            return None
        from gpu_doctor.notebook.line_magic import answer

        return answer(line)


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
    """Takes them away."""
    completion.forget(shell)
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop(_MAGIC, None)
