"""A diagnosis in words: plain text for a terminal, and self-contained HTML that stays in the saved notebook.

Both walk the sections of `sections.py`, verdict first. The HTML survives notebook sanitizers (see `as_html.py`);
everything that comes from the user's program, a loaded file or a device's driver is cleaned and escaped.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpu_doctor import display
from gpu_doctor.diagnosis import Diagnosis
from gpu_doctor.recording import Recording
from gpu_doctor.report import as_html as sheet
from gpu_doctor.report.labels import LABELS
from gpu_doctor.report.sections import SECTIONS, Reported
from gpu_doctor.report.text_parts import WIDTH as WIDTH
from gpu_doctor.report.trials import Sides, sides_of
from gpu_doctor.trials import Largest, Plan, Sweep
from gpu_doctor.trials.compare import Effect


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
        effects: of trials, oldest first. trials: the recordings they left (`Case.trials`). plan: of a treatment.
        sweep, largest: what a sweep and a search for the largest batch found.
    """
    runs = () if recording is None else (recording,)
    sides = sides_of(effects, trials)
    shown = Reported(diagnosis, recording, runs, effects, sides, "", (), plan, sweep, largest)
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
        title: of the case. notes: sentences for the footer, beside those of the drawn recording and the diagnosis.
        trials: the recordings that the effects left (`Case.trials`). plan: of a treatment.
        sweep, largest: what a sweep and a search for the largest batch found.
    """
    sides = sides_of(effects, trials)
    drawn = next((one for one in reversed(recordings) if _judged(one, diagnosis)), None)
    if drawn is None and recordings:
        drawn = recordings[-1]
    shown = Reported(diagnosis, drawn, recordings, effects, sides, title, notes, plan, sweep, largest)
    return sheet.whole(*(section.html(shown) for section in SECTIONS))


def _judged(recording: Recording, diagnosis: Diagnosis) -> bool:
    vitals = diagnosis.vitals
    return recording.setup is vitals.setup and recording.settings == vitals.settings


display.register(Diagnosis, text, html)
