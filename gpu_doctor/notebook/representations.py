"""What a cell's last expression shows of our objects, once the extension is loaded: words; `repr` is for programs.

IPython finds the writers by the names of the classes, so that nothing is imported before it is shown.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from gpu_doctor import formatting
from gpu_doctor.recording import describe

if TYPE_CHECKING:
    from gpu_doctor.diagnosis import Vitals
    from gpu_doctor.recording import Recording
    from gpu_doctor.trials import Case


def case(one: Case) -> str:
    """What was run and tried, and the verdict."""
    done = [formatting.count(len(one.recordings), "run"), formatting.count(len(one.effects), "trial")]
    verdict = one.diagnosis.verdict if one.diagnosis is not None else "Not run yet: .run() runs it."
    return f"{formatting.clean(one.name, 80)} ({', '.join(done)}): {formatting.clean(verdict)}"


def recording(one: Recording) -> str:
    """How long, how many steps, under what, how it ended."""
    head = f"{formatting.clean(one.name, 80) or 'recording'}, {formatting.clean(describe(one.settings), 200)}"
    steps = formatting.count(int(one.steps.count.sum()), "step")
    ended = formatting.OUTCOME_LABELS.get(one.outcome, formatting.clean(one.outcome, 80))
    return f"{head}: {steps} in {formatting.seconds(one.duration_s)}, {ended}"


def vitals(one: Vitals) -> str:
    """The numbers that were measured, one a line, by their names."""
    found = {field.name: getattr(one, field.name) for field in dataclasses.fields(one)}
    numbers = {
        name: value for name, value in found.items() if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    wide = max(map(len, numbers), default=0)
    return "\n".join(f"{name:<{wide}}  {value:.6g}" for name, value in numbers.items())


WRITERS: Final[dict[tuple[str, str], Callable[[Any], str]]] = {
    ("gpu_doctor.trials.results", "Largest"): str,
    ("gpu_doctor.machine.checkup.result", "Checkup"): str,
    ("gpu_doctor.diagnosis.diagnosis", "Diagnosis"): str,
    ("gpu_doctor.trials.compare.effect", "Effect"): str,
    ("gpu_doctor.cell.fix", "Fix"): str,
    ("gpu_doctor.trials.results", "Sweep"): str,
    ("gpu_doctor.trials.results", "Plan"): str,
    ("gpu_doctor.trials.case", "Case"): case,
    ("gpu_doctor.recording.recording", "Recording"): recording,
    ("gpu_doctor.diagnosis.vitals.fields", "Vitals"): vitals,
}
"""Module and class -> its words."""


def teach(shell: Any) -> None:
    """Lets a shell show our objects in words."""
    plain = shell.display_formatter.formatters["text/plain"]
    for (module, name), write in WRITERS.items():
        plain.for_type_by_name(module, name, _printer(write))


def forget(shell: Any) -> None:
    """Takes that back."""
    plain = shell.display_formatter.formatters["text/plain"]
    for module, name in WRITERS:
        plain.pop(f"{module}.{name}", None)


def _printer(write: Callable[[Any], str]) -> Callable[[Any, Any, bool], None]:
    """As IPython's pretty printer calls it; words inside of a list stand as `repr` would."""

    def printed(one: Any, printer: Any, cycle: bool) -> None:
        for number, line in enumerate(write(one).splitlines()):
            if number:
                printer.break_()
            printer.text(line)

    return printed


class Answer:
    """What IPython displays: the HTML where there is any and the page takes it, else the text."""

    def __init__(self, text: str, html: str = "") -> None:
        self._text, self._html = text, html

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str | None:
        return self._html or None
