"""What `%gpudoctor ...` answers: objects that a notebook shows as HTML and a terminal as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from IPython.core.error import UsageError

import gpu_doctor
from gpu_doctor import knobs, report
from gpu_doctor.knobs import cell_variables
from gpu_doctor.notebook.options import LINE_FORM, exactly, words
from gpu_doctor.recording import Setup


class Shown:
    """Text for a terminal and HTML for a notebook, of one thing."""

    def __init__(self, text: str, html: str = "") -> None:
        self._text, self._html = text, html

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str | None:
        return self._html or None


def answer(line: str) -> Any:
    """The answer to one line.

    Raises:
        UsageError: one sentence that names the right form.
    """
    asked = words(line)
    if not asked or asked[0] not in ANSWERS:
        raise UsageError(f"{'Nothing was asked' if not asked else f'Unknown word {asked[0]!r}'}. Use: {LINE_FORM}")
    try:
        return ANSWERS[asked[0]](asked[1:])
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from None


def _check(arguments: list[str]) -> Any:
    exactly(arguments, 0, "%gpudoctor check")
    return gpu_doctor.check()


def _explain(arguments: list[str]) -> Any:
    return gpu_doctor.explain(exactly(arguments, 1, "%gpudoctor explain RULE")[0])


def _knobs(arguments: list[str]) -> Any:
    exactly(arguments, 0, "%gpudoctor knobs")
    case = gpu_doctor.last_case()
    setup = (case.found if case is not None else None) or Setup()
    lines = []
    for name, knob in knobs.KNOBS.items():
        found = knob.found(setup)
        choices = knob.choices(setup)
        free = ", ".join(str(choice.value) for choice in choices if not choice.refusal)
        why = next((choice.refusal for choice in choices if choice.refusal), "")
        written = "not in this loop" if found is None else f"as written {found}"
        lines.append(f"{name:<20} {knob.safety.value:<17} {written}; {f'can be {free}' if free else why}")
        lines += [f"{'':<20} {knob.changes}"] if knob.changes else []
    for name, value in cell_variables.variables_of(case.source).items() if case is not None else ():
        lines.append(f"{'vary.' + name:<20} {'changes-training':<17} as written {value!r:.60}; a variable of the cell")
    return Shown("\n".join(lines))


def _report(arguments: list[str]) -> Any:
    if len(arguments) > 1:
        exactly(arguments, 1, "%gpudoctor report [PATH]")
    if arguments:
        recording = gpu_doctor.load(arguments[0])
        diagnosis = gpu_doctor.diagnose(recording)
        return Shown(report.text(diagnosis, recording), report.html(diagnosis, (recording,)))
    case = _case()
    if case.diagnosis is None:
        raise UsageError("The last cell has no result yet: run a cell with %%gpudoctor first.")
    recordings = tuple(case.recordings)
    newest = recordings[-1] if recordings else case.baseline
    effects = tuple(case.effects)
    trials = tuple(case.trials)
    return Shown(
        report.text(case.diagnosis, newest, effects, trials=trials),
        report.html(case.diagnosis, recordings, effects, trials=trials),
    )


def _history(arguments: list[str]) -> Any:
    exactly(arguments, 0, "%gpudoctor history")
    case = _case()
    runs = [f"{one.name}: {gpu_doctor.diagnose(one).verdict} ({one.outcome})" for one in case.recordings]
    return Shown("\n".join([*runs, *(str(effect) for effect in case.effects)]) or "No run yet.")


def _compare(arguments: list[str]) -> Any:
    first, second = exactly(arguments, 2, "%gpudoctor compare A B, with two paths of saved recordings")
    return gpu_doctor.compare(gpu_doctor.load(first), gpu_doctor.load(second))


def _case() -> gpu_doctor.Case:
    case = gpu_doctor.last_case()
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
