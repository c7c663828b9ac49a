"""What `%gpudoctor ...` answers: objects that a notebook shows as HTML and a terminal as text."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Final

from IPython.core.error import UsageError

from gpu_doctor import formatting, report
from gpu_doctor.diagnosis import Safety, diagnose, explain
from gpu_doctor.job import Job
from gpu_doctor.job import load as load_any
from gpu_doctor.machine.checkup.check import check
from gpu_doctor.notebook.options import LINE_FORM, exactly, path, words
from gpu_doctor.notebook.representations import Answer
from gpu_doctor.recording import Setup, load
from gpu_doctor.trials import knobs
from gpu_doctor.trials.compare import compare
from gpu_doctor.trials.knobs import Knob, KnobTable

if TYPE_CHECKING:
    from gpu_doctor.trials import Case

CELL_HINT: Final = "To diagnose a cell, write %%gpudoctor, with two percent signs, as its first line."
WIDTH: Final = 100
_NAME: Final = 20
_UNKNOWN: Final = "not known yet: run a cell with %%gpudoctor first"
_SAFETY: Final = {Safety.SAFE: "safe", Safety.CHANGES_TRAINING: "changes the training", Safety.BY_HAND: "by hand"}


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
        hint = formatting.did_you_mean(word, ANSWERS)
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
    from gpu_doctor.trials import last_case

    case = last_case()
    if case is None:
        return knob_list(knobs.KNOBS, Setup())
    newest = case.recordings[-1] if case.recordings else None
    if case.found is None and newest is not None:  # every run so far had knobs turned, as with --set
        return knob_list(knobs.KNOBS, newest.setup, newest.settings)
    return knob_list(knobs.KNOBS, case.found or Setup())


def _report(arguments: list[str]) -> Any:
    if not arguments:
        shown = _of_the_last_case()
    else:
        recording = load_any(path(exactly(arguments, 1, "%gpudoctor report [PATH]")[0]))
        if isinstance(recording, Job):
            return Answer(str(recording), recording._repr_html_())
        shown = report.Reported(diagnose(recording), (recording,))
    return Answer(report.text(shown), report.html(shown))


def _of_the_last_case() -> report.Reported:
    case = _case()
    if case.diagnosis is None:
        raise UsageError("The last cell has no result yet: run a cell with %%gpudoctor first.")
    return report.Reported.of(case, case.diagnosis)


def _history(arguments: list[str]) -> Any:
    exactly(arguments, 0, "%gpudoctor history")
    case = _case()
    runs = [f"{one.name}: {diagnose(one).verdict} ({one.outcome})" for one in case.recordings]
    return Answer("\n".join([*runs, *(str(effect) for effect in case.effects)]) or "No run yet.")


def _compare(arguments: list[str]) -> Any:
    first, second = exactly(arguments, 2, "%gpudoctor compare A B, with two paths of saved recordings")
    return compare(load(path(first)), load(path(second)))


def _case() -> Case:
    from gpu_doctor.trials import last_case

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


@dataclass(frozen=True)
class Row:
    """One knob in words."""

    name: str
    safety: str
    written: str
    """Empty where the loop has nothing to turn."""
    can_be: str
    """Other values; empty where there is none."""
    why_not: str
    changes: str

    @property
    def offer(self) -> str:
        """What it is and what it can be, or why it cannot be turned."""
        written = self.written and f"as written {self.written}".replace("as written as written", "as written")
        if self.can_be:
            return f"{written}; can be {self.can_be}" if written else f"can be {self.can_be}"
        return f"{written}. {self.why_not}" if written and self.why_not else written or self.why_not


def knob_list(
    knobs: KnobTable,
    setup: Setup,
    turned: Mapping[str, object] | None = None,
) -> Answer:
    """The table of knobs for the loop of `setup` (an empty one: no loop was seen yet).

    Args:
        knobs: to list.
        setup: as it was found.
        turned: knobs that were turned when the setup was found: of these it does not tell how they are written.
    """
    rows = [_row(knob, setup, turned or {}) for knob in knobs.values()]
    return Answer("\n".join(line for row in rows for line in _text(row)), _html(rows))


def _row(knob: Knob, setup: Setup, turned: Mapping[str, object]) -> Row:
    safety = _SAFETY[knob.safety]
    if setup == Setup():
        return Row(knob.name, safety, "", "", _UNKNOWN, knob.changes)
    written = knob.found(setup)
    choices = knob.choices(setup)
    unseen = knob.name in turned
    free = [choice.label for choice in choices if not choice.refusal and (unseen or choice.value != written)]
    why_not = next((choice.refusal for choice in choices if choice.refusal), "")
    if written is None and why_not and len(free) == 1:
        free = []  # "off" alone is nothing to choose
    shown = "" if written is None else formatting.clean(_label(knob, setup, written), 60)
    if unseen:
        shown = f"not run yet (the last run used {formatting.clean(_label(knob, setup, turned[knob.name]), 60)})"
    return Row(
        knob.name, safety, shown, formatting.clean(", ".join(free), 200), formatting.clean(why_not), knob.changes
    )


def _label(knob: Knob, setup: Setup, written: object) -> str:
    """The value as written in the words of the panel."""
    return next((one.label for one in knob.choices(setup) if one.value == written), str(written))


def _text(row: Row) -> list[str]:
    """Lines of at most WIDTH characters, what follows set in under the first."""
    indent = " " * (_NAME + 1)
    lines = textwrap.wrap(f"{row.name:<{_NAME}} {row.offer}", WIDTH, subsequent_indent=indent, break_on_hyphens=False)
    said = f"{row.safety}: {row.changes}" if row.changes else row.safety
    return lines + textwrap.wrap(said, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def _html(rows: Iterable[Row]) -> str:
    line = "1px solid rgba(128,128,128,0.35)"
    cell = f"padding:3px 12px 3px 0;text-align:left;vertical-align:top;border-bottom:{line}"
    head = "".join(f'<th style="{cell};opacity:0.72;font-weight:normal">{one}</th>' for one in _HEAD)
    body = "".join(
        f'<tr style="background:transparent"><td style="{cell};white-space:nowrap"><b>{escape(row.name)}</b></td>'
        f'<td style="{cell}">{escape(row.written or "-")}</td>'
        f'<td style="{cell}">{escape(row.can_be or row.why_not or "-")}</td>'
        f'<td style="{cell}"><b>{escape(row.safety)}</b>{": " if row.changes else ""}{escape(row.changes)}</td></tr>'
        for row in rows
    )
    # JupyterLab's own style makes all columns of a table equally wide.
    style = "border-collapse:collapse;table-layout:auto;width:100%;max-width:1100px;font-size:13px;border:none"
    return f'<table style="{style}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


_HEAD: Final = ("knob", "as written", "can be", "what it changes")
