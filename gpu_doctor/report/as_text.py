"""A diagnosis in words: plain text for a terminal, and self-contained HTML that stays in the saved notebook.

Both say the same, verdict first. The HTML survives notebook sanitizers (see `as_html.py`); everything that
comes from the user's program, a loaded file or a device's driver is cleaned and escaped.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

from gpu_doctor import display, formatting
from gpu_doctor.diagnosis import Diagnosis, Finding, Prescription
from gpu_doctor.formatting import PHASE_LABELS, clean
from gpu_doctor.recording import Recording
from gpu_doctor.report import as_html as sheet
from gpu_doctor.report.plan import plan_html, plan_text
from gpu_doctor.report.searches import largest_html, sweep_html
from gpu_doctor.report.trials import Sides, sides_html, sides_of, sides_text
from gpu_doctor.report.words import (
    RISK_MARK,
    SAFETY_WORDS,
    Row,
    anatomy_rows,
    columns,
    first_step,
    footer,
    machine_facts,
    predicted_words,
    price,
    rows,
    run_facts,
    silences,
    verdict_words,
)
from gpu_doctor.trials import Largest, Plan, Sweep
from gpu_doctor.trials.compare import Effect

WIDTH: Final = 100
_BAR: Final = 40


def text(
    diagnosis: Diagnosis,
    recording: Recording | None = None,
    effects: Sequence[Effect] = (),
    *,
    trials: Sequence[Sides] = (),
    plan: Plan | None = None,
    sweep: Sweep | None = None,
    largest: Largest | None = None,
) -> str:
    """The report for a terminal, lines of about 100 characters.

    Args:
        diagnosis: what to report. recording: the run that it judges, for outcome and duration.
        effects: verified trials, oldest first. trials: the recordings they left (`Case.trials`). plan: of a treatment.
        sweep, largest: what a sweep and a search for the largest batch found.
    """
    vitals = diagnosis.vitals
    sides = sides_of(effects, trials)
    parts = [
        " · ".join(["GPU Doctor", *machine_facts(vitals.setup)]) + "\n" + " · ".join(run_facts(vitals, recording)),
        "\n".join([_wrapped(verdict_words(diagnosis)), *_first_step(diagnosis)]),
        _anatomy(diagnosis),
        plan_text(plan) if plan is not None else "",
        str(sweep) if sweep is not None else "",
        _wrapped(str(largest)) if largest is not None else "",
        _table(rows([recording] if recording is not None else [], effects, sides), vitals.on_gpu) if effects else "",
        "\n".join(_wrapped(line) for line in sides_text(effects, sides)),
        "\n".join(_finding(number, one, diagnosis) for number, one in enumerate(diagnosis.findings, 1)),
        _silent(diagnosis),
        "\n".join(_wrapped(f"Note: {clean(one)}") for one in (*_recorded(recording), *diagnosis.notes)),
        footer(vitals),
    ]
    return "\n\n".join(part for part in parts if part)


def html(
    diagnosis: Diagnosis,
    recordings: Sequence[Recording] = (),
    effects: Sequence[Effect] = (),
    *,
    title: str = "GPU Doctor",
    notes: Sequence[str] = (),
    trials: Sequence[Sides] = (),
    plan: Plan | None = None,
    sweep: Sweep | None = None,
    largest: Largest | None = None,
) -> str:
    """The static result: one `<div class="gpu-doctor-static">`, self-contained, readable on light and dark pages.

    Args:
        diagnosis: what to report.
        recordings: the runs of the case, oldest first. Drawn is the one that was diagnosed (told by its setup and
            settings), else the newest.
        effects: verified trials, oldest first.
        title: of the case. notes: sentences for the footer, beside those of the drawn recording and the diagnosis.
        trials: the recordings that the effects left (`Case.trials`). plan: of a treatment.
        sweep, largest: what a sweep and a search for the largest batch found.
    """
    sides = sides_of(effects, trials)
    drawn = next((one for one in reversed(recordings) if _judged(one, diagnosis)), None)
    if drawn is None and recordings:
        drawn = recordings[-1]
    said = [*_recorded(drawn), *diagnosis.notes, *notes]
    return sheet.whole(
        sheet.header(diagnosis, drawn, title),
        sheet.verdict(diagnosis),
        sheet.anatomy(diagnosis.vitals),
        sheet.plots(drawn) if drawn is not None else "",
        plan_html(plan) if plan is not None else "",
        sweep_html(sweep) if sweep is not None else "",
        largest_html(largest) if largest is not None else "",
        sheet.runs(rows(recordings, effects, sides), diagnosis.vitals.on_gpu) if recordings or effects else "",
        sides_html(effects, sides),
        *(sheet.finding(number, one, diagnosis) for number, one in enumerate(diagnosis.findings, 1)),
        sheet.source(diagnosis.vitals.source, diagnosis.vitals.lines),
        sheet.silent(silences(diagnosis)),
        sheet.footer(diagnosis, list(dict.fromkeys(said))),
    )


def _recorded(recording: Recording | None) -> tuple[str, ...]:
    """The notes of a recording; none without one."""
    return recording.notes if recording is not None else ()


def _judged(recording: Recording, diagnosis: Diagnosis) -> bool:
    vitals = diagnosis.vitals
    return recording.setup is vitals.setup and recording.settings == vitals.settings


def _wrapped(line: str, indent: str = "") -> str:
    return textwrap.fill(
        line, WIDTH, initial_indent=indent, subsequent_indent=" " * (len(indent) + 2), break_on_hyphens=False
    )


def _first_step(diagnosis: Diagnosis) -> list[str]:
    """What to do first, under the verdict."""
    first = first_step(diagnosis)
    return _prescription(first, "  Try: ", "       ") if first is not None else []


def _prescription(one: Prescription, mark: str, indent: str) -> list[str]:
    said = ", ".join(part for part in (SAFETY_WORDS[one.safety], predicted_words(one)) if part)
    changes = f" {clean(one.changes)}" if one.changes else ""
    code = [f"{indent}    {line}" for line in clean(one.code, 4000).splitlines()]
    return [_wrapped(f"{clean(one.text, 1000)} [{said}]{changes}", mark), *code]


def _finding(number: int, finding: Finding, diagnosis: Diagnosis) -> str:
    said, first = price(finding, diagnosis.vitals), first_step(diagnosis)
    again = "" if finding.headline == diagnosis.verdict else f": {clean(finding.headline)}"
    lines = [_wrapped(f"{number}. {clean(finding.rule)}, {said}{again}")]
    lines += [_wrapped(clean(finding.risk, 1000), f"   {RISK_MARK} ")] if finding.risk else []
    lines += [_wrapped(f"{clean(one, 1000)}", "   - ") for one in finding.evidence]
    for one in finding.prescriptions:
        if one is first:
            lines.append(_wrapped(f"{clean(one.text, 1000)} (see above)", "   > "))
            continue
        lines += _prescription(one, "   > ", "     ")
    return "\n".join(lines)


def _anatomy(diagnosis: Diagnosis) -> str:
    phases = anatomy_rows(diagnosis.vitals)
    if not phases:
        return ""
    lines = [f"Anatomy of a step, {formatting.seconds(diagnosis.vitals.step_wall_s)}"]
    for phase, share, seconds in phases:
        bar = "█" * round(_BAR * min(share, 1.0)) or "▏"
        lines.append(f"  {PHASE_LABELS[phase]:<11}{formatting.seconds(seconds):>9}{formatting.share(share):>13}  {bar}")
    return "\n".join(lines)


def _table(table: Sequence[Row], on_gpu: bool) -> str:
    head = columns(on_gpu)
    cells = [head, *(row.cells for row in table)]
    # A long reason must not push all columns apart: it ends its line.
    widths = [max(len(row[i]) for row in cells if len(row[i]) <= 34) for i in range(len(head))]
    return "\n".join("  ".join(f"{cell:<{widths[i]}}" for i, cell in enumerate(row)).rstrip() for row in cells)


def _silent(diagnosis: Diagnosis) -> str:
    grouped = silences(diagnosis)
    if not grouped:
        return ""
    lines = [f"Not judged: {formatting.count(len(diagnosis.silent), 'rule')}"]
    return "\n".join([*lines, *(_silence(why, names) for why, names in grouped.items())])


def _silence(why: str, names: Sequence[str]) -> str:
    """One line, with as many names as it holds."""
    head = f"  {why}: " if len(names) == 1 else f"  {why}: {formatting.count(len(names), 'rule')}, "
    named = len(names)
    while named > 1 and len(head + ", ".join(names[:named])) + (16 if named < len(names) else 0) > WIDTH:
        named -= 1
    more = f" and {len(names) - named} more" if named < len(names) else ""
    return head + ", ".join(names[:named]) + more


display.register(Diagnosis, text, html)
