"""The answers of `%gpudoctor WORD`: objects that a notebook shows as HTML and a terminal as text."""

from __future__ import annotations

import inspect
import os
import shlex
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from IPython.core.error import UsageError

from gpu_doctor import formatting, report
from gpu_doctor.diagnosis import Safety, diagnose, explain
from gpu_doctor.job import Job
from gpu_doctor.job import load as load_any
from gpu_doctor.machine.checkup.check import check
from gpu_doctor.notebook.answer import Answer
from gpu_doctor.notebook.options import path
from gpu_doctor.recording import Setup, load
from gpu_doctor.trials import knobs
from gpu_doctor.trials.compare import compare
from gpu_doctor.trials.knobs import Knob, KnobTable

if TYPE_CHECKING:
    from gpu_doctor.trials import Case

WIDTH: Final = 100
_NAME: Final = 20
_UNKNOWN: Final = "unknown: run a cell with %%gpudoctor first"
_SAFETY: Final = {Safety.SAFE: "safe", Safety.CHANGES_TRAINING: "changes the training", Safety.BY_HAND: "by hand"}
_HEAD: Final = ("knob", "as written", "otherwise", "what it changes")
_NOTHING: Final = "-"
_Row = tuple[str, str, str, str]
"""One cell for each column of `_HEAD`; empty if the loop has nothing to turn."""


def answer(word: str, details: Sequence[str]) -> Any:
    """Returns the answer to a word of `ANSWERS`.

    Args:
        word: first word of the line.
        details: words after it.

    Raises:
        UsageError: The details are wrong, in one sentence.
    """
    function = ANSWERS[word]
    try:
        inspect.signature(function).bind(*details)
    except TypeError as error:
        raise UsageError(f"%gpudoctor {word}: {error}. %gpudoctor? shows what it takes.") from None
    try:
        return function(*details)
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from None


def _knobs() -> Answer:
    from gpu_doctor.trials import last_case

    case = last_case()
    if case is None:
        return knob_list(knobs.KNOBS, Setup())
    newest = case.recordings[-1] if case.recordings else None
    if case.found is None and newest is not None:  # every run so far turned knobs, as with --set
        return knob_list(knobs.KNOBS, newest.setup, newest.settings)
    return knob_list(knobs.KNOBS, case.found or Setup())


def _report(saved: str = "") -> Answer:
    if saved:
        recording = load_any(path(saved))
        if isinstance(recording, Job):
            return Answer(str(recording), recording._repr_html_())
        shown = report.Reported(diagnose(recording), (recording,))
    else:
        case = _case()
        if case.diagnosis is None:
            raise UsageError("The last cell has no result yet: run a cell with %%gpudoctor first.")
        shown = report.Reported.of(case, case.diagnosis)
    return Answer(report.text(shown), report.html(shown))


def _nsys() -> Answer:
    """Returns the command that runs this notebook under Nsight Systems.

    It contains the notebook's name if Jupyter's server passes it to the kernel, else `notebook.ipynb`.
    """
    notebook = PurePath(os.environ.get("JPY_SESSION_NAME", "")).name
    named = shlex.quote(notebook if notebook.endswith(".ipynb") else "notebook.ipynb")
    command = (
        "nsys profile --trace=cuda,nvtx,osrt --output=loop "
        f"jupyter nbconvert --to notebook --execute --output=profiled {named}"
    )
    return Answer(
        "Begin the training cell with %%gpudoctor --nvtx --no-view --steps 50, save the notebook, and run in a "
        f"terminal:\n\n    {formatting.clean(command)}\n\nThen open loop.nsys-rep in Nsight Systems: the row NVTX has "
        "the steps and phases."
    )


def _history() -> Answer:
    case = _case()
    runs = [f"{recording.name}: {diagnose(recording).verdict} ({recording.outcome})" for recording in case.recordings]
    return Answer("\n".join([*runs, *(str(effect) for effect in case.effects)]) or "No run yet.")


def _compare(first: str, second: str) -> Any:
    return compare(load(path(first)), load(path(second)))


def _case() -> Case:
    from gpu_doctor.trials import last_case

    case = last_case()
    if case is None:
        raise UsageError("Nothing was run yet: put %%gpudoctor on a training cell and run it first.")
    return case


ANSWERS: Final[dict[str, Callable[..., Any]]] = {
    "check": check,
    "knobs": _knobs,
    "explain": explain,
    "report": _report,
    "history": _history,
    "compare": _compare,
    "nsys": _nsys,
}


def knob_list(table: KnobTable, setup: Setup, turned: Mapping[str, object] | None = None) -> Answer:
    """Returns the table of knobs for a loop.

    Args:
        table: knobs to list.
        setup: setup of the loop as it was recorded; an empty setup if no loop was seen yet.
        turned: settings that were applied when the setup was recorded; the written values of these knobs are unknown.
    """
    rows = [_row(knob, setup, turned or {}) for knob in table.values()]
    return Answer("\n".join(line for row in rows for line in _text(row)), _html(rows))


def _row(knob: Knob, setup: Setup, turned: Mapping[str, object]) -> _Row:
    safety = _SAFETY[knob.safety]
    changes = f"{safety}: {knob.changes}" if knob.changes else safety
    if setup == Setup():
        return knob.name, "", _UNKNOWN, changes
    written, choices, unseen = knob.found(setup), knob.choices(setup), knob.name in turned
    labels: dict[object, str] = {choice.value: choice.label for choice in choices}
    free = [choice.label for choice in choices if not choice.refusal and (unseen or choice.value != written)]
    why_not = next((choice.refusal for choice in choices if choice.refusal), "")
    if written is None and why_not and len(free) == 1:
        free = []  # "off" alone is no choice
    shown = "" if written is None else formatting.clean(labels.get(written, written), 60)
    if unseen:
        used = turned[knob.name]
        shown = f"not run yet (the last run used {formatting.clean(labels.get(used, used), 60)})"
    otherwise = f"can be {formatting.clean(', '.join(free), 200)}" if free else formatting.clean(why_not)
    return knob.name, shown, otherwise, changes


def _text(row: _Row) -> list[str]:
    """Formats a row as lines of at most WIDTH characters, indented from the second line on."""
    name, written, otherwise, changes = row
    as_written = f"as written {written.removeprefix('as written ')}" if written else ""
    mark = "; " if otherwise.startswith("can be ") else ". "
    first = f"{name:<{_NAME}} {mark.join(filter(None, (as_written, otherwise)))}"
    indent = " " * (_NAME + 1)
    wrap = textwrap.TextWrapper(WIDTH, subsequent_indent=indent, break_on_hyphens=False)
    return wrap.wrap(first) + wrap.wrap(f"{indent}{changes}")


def _html(rows: Iterable[_Row]) -> str:
    lines = [_line("th", _HEAD), *(_line("td", row) for row in rows)]
    # JupyterLab's own style makes all columns of a table equally wide.
    return f'<table style="table-layout:auto">{"".join(lines)}</table>'


def _line(tag: str, cells: Iterable[str]) -> str:
    start = f'<{tag} style="text-align:left;vertical-align:top;padding:3px 12px 3px 0">'
    return f"<tr>{''.join(f'{start}{escape(cell or _NOTHING)}</{tag}>' for cell in cells)}</tr>"
