"""What `%gpudoctor ...` answers: objects that a notebook shows as HTML and a terminal as text."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any, Final

from IPython.core.error import UsageError

from gpu_doctor import formatting
from gpu_doctor.diagnosis.diagnosis import diagnose
from gpu_doctor.diagnosis.rules.page import explain
from gpu_doctor.machine.checkup.check import check
from gpu_doctor.notebook.knob_list import knob_list
from gpu_doctor.notebook.options import LINE_FORM, exactly, words
from gpu_doctor.notebook.shown import Shown
from gpu_doctor.recording import Setup, load
from gpu_doctor.report import as_text
from gpu_doctor.trials import knobs
from gpu_doctor.trials.case import Case, last_case
from gpu_doctor.trials.compare.effect import compare
from gpu_doctor.trials.knobs import cell_variables

CELL_HINT: Final = (
    "Nothing was asked: to run a cell under the doctor, write %%gpudoctor, with two percent signs, as its first line."
)


def answer(line: str) -> Any:
    """The answer to one line.

    Raises:
        UsageError: one sentence that names the right form.
    """
    asked = words(line)
    if not asked or asked[0].startswith("-"):  # the usual slip: one percent sign above a cell
        raise UsageError(f"{CELL_HINT} Use: {LINE_FORM}")
    word = asked[0].lower()
    if word not in ANSWERS:
        near = difflib.get_close_matches(word, ANSWERS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise UsageError(f"Unknown word {formatting.clean(asked[0], 60)!r}.{hint} Use: {LINE_FORM}")
    try:
        return ANSWERS[word](asked[1:])
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from None


def _check(arguments: list[str]) -> Any:
    exactly(arguments, 0, "%gpudoctor check")
    return check()


def _explain(arguments: list[str]) -> Any:
    return explain(exactly(arguments, 1, "%gpudoctor explain RULE, such as slow-getitem")[0])


def _knobs(arguments: list[str]) -> Any:
    exactly(arguments, 0, "%gpudoctor knobs")
    case = last_case()
    if case is None:
        return knob_list(knobs.KNOBS, Setup())
    variables = cell_variables.variables_of(case.source).items()
    newest = case.recordings[-1] if case.recordings else None
    if case.found is None and newest is not None:  # every run so far had knobs turned, as with --set
        return knob_list(knobs.KNOBS, newest.setup, variables, newest.settings)
    return knob_list(knobs.KNOBS, case.found or Setup(), variables)


def _report(arguments: list[str]) -> Any:
    if len(arguments) > 1:
        exactly(arguments, 1, "%gpudoctor report [PATH]")
    if arguments:
        recording = load(arguments[0])
        diagnosis = diagnose(recording)
        return Shown(as_text.text(diagnosis, recording), as_text.html(diagnosis, (recording,)))
    case = _case()
    if case.diagnosis is None:
        raise UsageError("The last cell has no result yet: run a cell with %%gpudoctor first.")
    recordings = tuple(case.recordings)
    newest = recordings[-1] if recordings else case.baseline
    effects = tuple(case.effects)
    trials = tuple(case.trials)
    return Shown(
        as_text.text(case.diagnosis, newest, effects, trials=trials),
        as_text.html(case.diagnosis, recordings, effects, trials=trials),
    )


def _history(arguments: list[str]) -> Any:
    exactly(arguments, 0, "%gpudoctor history")
    case = _case()
    runs = [f"{one.name}: {diagnose(one).verdict} ({one.outcome})" for one in case.recordings]
    return Shown("\n".join([*runs, *(str(effect) for effect in case.effects)]) or "No run yet.")


def _compare(arguments: list[str]) -> Any:
    first, second = exactly(arguments, 2, "%gpudoctor compare A B, with two paths of saved recordings")
    return compare(load(first), load(second))


def _case() -> Case:
    case = last_case()
    if case is None:
        raise UsageError("Nothing was run yet: put %%gpudoctor on a training cell and run it first.")
    return case


ANSWERS: dict[str, Callable[[list[str]], Any]] = {
    "check": _check,
    "explain": _explain,
    "knobs": _knobs,
    "report": _report,
    "history": _history,
    "compare": _compare,
}
