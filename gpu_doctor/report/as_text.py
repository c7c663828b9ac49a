"""A diagnosis in words: plain text for a terminal, and self-contained HTML that stays in the saved notebook.

Both walk the sections of `sections.py`, verdict first. The HTML survives notebook sanitizers (see `as_html.py`);
everything that comes from the user's program, a loaded file or a device's driver is cleaned and escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from gpu_doctor import display, formatting
from gpu_doctor.diagnosis import Diagnosis
from gpu_doctor.recording import Recording
from gpu_doctor.report import as_html as sheet
from gpu_doctor.report import text_parts as lines
from gpu_doctor.report.before_after import newest
from gpu_doctor.report.labels import LABELS
from gpu_doctor.report.picture import Summary, drawn
from gpu_doctor.report.runs import columns, rows
from gpu_doctor.report.sections import SECTIONS, Reported
from gpu_doctor.report.text_parts import WIDTH as WIDTH
from gpu_doctor.report.trials import Sides, sides_of
from gpu_doctor.report.words import accent, anatomy_rows, footer, verdict_words
from gpu_doctor.trials import Largest, Plan, Sweep
from gpu_doctor.trials.compare import Effect

MOST_LETTERS: Final = 140_000
"""Of the static result, which is saved with the notebook; the frame and a note are not counted."""
LEFT_OUT_FIRST: Final = ("lines", "trials", "plots", "not judged", "plan", "sweep")
"""Sections that a result which would be larger goes without, in this order: what is left says the same without them."""


def text(
    diagnosis: Diagnosis,
    recording: Recording | None = None,
    effects: Sequence[Effect] = (),
    *,
    notes: Sequence[str] = (),
    trials: Sequence[Sides] = (),
    plan: Plan | None = None,
    sweep: Sweep | None = None,
    largest: Largest | None = None,
) -> str:
    """The report for a terminal, lines of about 100 characters.

    Args:
        diagnosis: what to report.
        recording: the run that it judges, for outcome and duration.
        effects: of trials, oldest first.
        notes: sentences beside those of the run and of the diagnosis.
        trials: the recordings that the effects left (`Case.trials`).
        plan: of a treatment.
        sweep: what a sweep found.
        largest: what a search for the largest batch found.
    """
    runs = () if recording is None else (recording,)
    sides = sides_of(effects, trials)
    shown = Reported(diagnosis, recording, runs, effects, sides, "", notes, plan, sweep, largest)
    return "\n\n".join(part for section in SECTIONS if (part := section.text(shown)))


def html(
    diagnosis: Diagnosis,
    recordings: Sequence[Recording] = (),
    effects: Sequence[Effect] = (),
    *,
    title: str = LABELS.product,
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
        effects: of trials, oldest first.
        title: of the case.
        notes: sentences for the footer, beside those of the drawn recording and the diagnosis.
        trials: the recordings that the effects left (`Case.trials`).
        plan: of a treatment.
        sweep: what a sweep found.
        largest: what a search for the largest batch found.
    """
    run, sides = _run(diagnosis, recordings), sides_of(effects, trials)
    shown = Reported(diagnosis, run, recordings, effects, sides, title, notes, plan, sweep, largest)
    written = {section.name: section.html(shown) for section in SECTIONS}
    left_out = _left_out(written)
    if left_out:
        said = f"Left out here, to keep the notebook small: {', '.join(left_out)}."
        last = replace(shown, notes=(*notes, said))
        written |= {section.name: section.html(last) for section in SECTIONS if section.name == "footer"}
    return sheet.whole(*(text for name, text in written.items() if name not in left_out))


def png(
    diagnosis: Diagnosis,
    recordings: Sequence[Recording] = (),
    effects: Sequence[Effect] = (),
    *,
    trials: Sequence[Sides] = (),
    plan: Plan | None = None,
) -> bytes:
    """The summary as a picture: header, verdict, anatomy and trials in the words of the other two.

    Args:
        diagnosis: as of `html`, and so are the others.
        recordings: the runs of the case, oldest first.
        effects: of trials, oldest first.
        trials: the recordings that the effects left (`Case.trials`).
        plan: of a treatment.

    Raises:
        ImportError: where there is no Pillow.
    """
    run, sides = _run(diagnosis, recordings), sides_of(effects, trials)
    shown = Reported(diagnosis, run, recordings, effects, sides, "", (), plan, None, None)
    told = {section.name: section.text(shown) for section in SECTIONS if section.name in ("header", "result")}
    on_gpu = diagnosis.vitals.on_gpu
    table = [
        [f"{cell.text} {cell.small}".strip() for cell in row.cells] for row in rows(recordings, effects, sides, on_gpu)
    ]
    return drawn(
        Summary(
            head=told["header"].splitlines(),
            result=" ".join(told["result"].split()),
            verdict=verdict_words(diagnosis),
            todo=lines.first_lines(diagnosis),
            accent=accent(diagnosis),
            step=formatting.seconds(diagnosis.vitals.host_step_s),
            phases=anatomy_rows(diagnosis.vitals),
            compared=newest(effects, sides),
            table=[columns(on_gpu, effects), *table] if effects else [],
            foot=footer(diagnosis.vitals),
        )
    )


def _left_out(written: Mapping[str, str]) -> list[str]:
    """The sections that the static result goes without, so that it takes at most `MOST_LETTERS`."""
    too_much = sum(map(len, written.values())) - MOST_LETTERS
    names = []
    for name in LEFT_OUT_FIRST:
        if too_much > 0 and written.get(name):
            too_much -= len(written[name])
            names.append(name)
    return names


def _run(diagnosis: Diagnosis, recordings: Sequence[Recording]) -> Recording | None:
    """The one that was diagnosed, else the newest."""
    found = next((one for one in reversed(recordings) if _judged(one, diagnosis)), None)
    return recordings[-1] if found is None and recordings else found


def _judged(recording: Recording, diagnosis: Diagnosis) -> bool:
    vitals = diagnosis.vitals
    return recording.setup is vitals.setup and recording.settings == vitals.settings


display.register(Diagnosis, text, html)
