"""Builds the pieces of the panel as plain data for the page, with formatted figures and cleaned text."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis import FEWEST_STEPS, Diagnosis, Finding, Prescription, Vitals, every_cause, paragraphs
from gpu_doctor.diagnosis.words import (
    FEW_NAMES,
    RISK_MARK,
    SAFETY_WORDS,
    accent,
    anatomy_rows,
    first_cure,
    hourly_loss,
    leading_risk,
    machine_facts,
    overhead,
    predicted_words,
    price,
    silences,
)
from gpu_doctor.labels import BOTTLENECK_LABELS, PHASE_LABELS
from gpu_doctor.recording import Setup, describe
from gpu_doctor.report import before_after
from gpu_doctor.report.ceiling import ceiling_of
from gpu_doctor.report.contract import (
    Advice,
    Anatomy,
    Cell,
    Compared,
    FindingShown,
    Footer,
    Header,
    Paragraph,
    PrescriptionShown,
    ProgressShown,
    Result,
    Segment,
    SideShown,
    Silence,
    Spread,
    Table,
    Verdict,
)
from gpu_doctor.report.panel_input import BUSY, SETTLED, STATUS, PanelInput, Progress, awaited, ended, failed
from gpu_doctor.report.proved import proved
from gpu_doctor.report.runs import columns, rows
from gpu_doctor.report.trials import sides_of
from gpu_doctor.svg import PHASE_COLOURS, ink

MOST_NOTES: Final = 12
INTERRUPT: Final = "To stop, interrupt the kernel (Kernel menu, or the stop button)."
_NEUTRAL: Final = PHASE_COLOURS["other"]


def anatomy(shown: PanelInput) -> Anatomy:
    """Returns the anatomy of a mean step: each phase's share of the wall-clock after warm-up, and its time."""
    vitals = shown.diagnosis.vitals if shown.diagnosis is not None else None
    settled = shown.status in SETTLED
    if vitals is None or vitals.step_wall_s is None:
        return Anatomy("", f"no step was measured{'' if settled else ' yet'}", (), _compared(shown))
    rows = anatomy_rows(vitals)
    shown_share = sum(share for _, share, _ in rows)  # phases too small to draw leave no hole
    segments = tuple(_segment(*row, row[1] / shown_share) for row in rows)
    of = f"mean of {formatting.count(vitals.measured_steps, 'step')}"
    if vitals.warmup_steps:
        of += f", {formatting.grouped(vitals.warmup_steps)} of warm-up left out"
    bound = ceiling_of(shown.effects, vitals)
    return Anatomy(formatting.seconds(vitals.host_step_s), of, segments, _compared(shown), bound)


def _segment(phase: str, part: float, took: float, share: float) -> Segment:
    return Segment(
        phase=phase,
        label=PHASE_LABELS[phase],
        share=round(share, 4),
        percent=formatting.share(part),
        time=formatting.seconds(took),
        colour=PHASE_COLOURS[phase],
        ink=ink(phase),
    )


def _compared(shown: PanelInput) -> Compared | None:
    found = before_after.newest(shown.effects, sides_of(shown.effects, shown.trials))
    if found is None:
        return None
    first, second = (_side(side, found.scale_s) for side in found.sides)
    return Compared(of=found.of, sides=(first, second))


def _side(side: before_after.SideSummary, scale_s: float) -> SideShown:
    at = tuple(round(min(quantile / scale_s, 1.0), 4) for quantile in side.quantiles_s)
    return SideShown(
        label=side.label,
        total=side.total,
        segments=tuple(_segment(*row, row[2] / scale_s) for row in side.phases),
        spread=Spread(at, side.spread) if at else None,
    )


def table(shown: PanelInput) -> Table:
    """Returns the table of runs and trials; `details` has one entry per row, None if the row unfolds nothing."""
    on_gpu = shown.setup.on_gpu
    drawn = rows(shown.recordings, shown.effects, sides_of(shown.effects, shown.trials), on_gpu)
    return Table(
        head=columns(on_gpu, shown.effects),
        rows=tuple(tuple(_cell(cell) for cell in row.cells) for row in drawn),
        details=tuple(row.unfolded() for row in drawn),
    )


def _cell(cell: Cell) -> Cell:
    # A no-break space keeps a figure and its unit on one line in a narrow panel.
    return replace(cell, text=cell.text.replace(" ", "\u00a0")) if len(cell.text) < 10 else cell


def header(shown: PanelInput) -> Header:
    """Returns the header: the machine, and the state of the run."""
    setup = shown.setup
    stoppable = shown.stop_live or shown.status == "waiting"
    return Header(
        machine=" · ".join(machine_facts(setup, bool(shown.step_count))) if setup != Setup() else "",
        replay="" if shown.replay_speed is None else f"replay at {shown.replay_speed:g}x",
        status=ended(shown) or STATUS.get(shown.status, shown.status),
        failed=failed(shown),
        name=formatting.clean(shown.name, 80),
        clock=formatting.clock(shown.elapsed_s),
        steps=formatting.count(shown.step_count, "step"),
        rate=formatting.rate(shown.samples_per_s, missing=""),
        settings=formatting.clean(describe(shown.settings), 120) if shown.settings and shown.status in BUSY else "",
        stop="" if stoppable else INTERRUPT,
        progress=None if shown.progress is None else _progress(shown.progress),
    )


def _counted(progress: Progress) -> str:
    """Returns the progress as a count, such as `step 12 of 50`."""
    return f"{progress.what} {progress.step}" + (f" of {progress.steps}" if progress.steps else "")


def _progress(progress: Progress) -> ProgressShown:
    left = progress.seconds_left
    return ProgressShown(
        text=formatting.clean(progress.text, 200),
        steps=_counted(progress) if progress.what else "",
        share=min(progress.step / progress.steps, 1.0) if progress.steps else 0.0,
        left="" if left is None else f"at most {formatting.countdown(left)} left",
    )


def result(shown: PanelInput) -> Result | None:
    """Returns the proven result of the trials, or None if there is none."""
    return proved(shown.effects, shown.plan, picking=shown.status in ("treating", "sweeping"), price=shown.price)


def verdict(shown: PanelInput) -> Verdict:
    """Returns the verdict with the first advice, or a sentence that says what the verdict waits for."""
    diagnosis = shown.diagnosis
    few = (
        diagnosis is not None and diagnosis.vitals.passes < FEWEST_STEPS and not (diagnosis.findings or diagnosis.hints)
    )
    if diagnosis is None or (few and shown.status not in SETTLED):
        return Verdict(text=awaited(shown), kind="", accent=_NEUTRAL, early="", risk="", advice=None)
    risk, first = leading_risk(diagnosis), first_cure(diagnosis)
    early = diagnosis.early and not few
    return Verdict(
        text=" ".join(filter(None, (formatting.clean(diagnosis.verdict), hourly_loss(diagnosis, shown.price)))),
        kind="" if few else BOTTLENECK_LABELS.get(diagnosis.bottleneck, diagnosis.bottleneck),
        accent=accent(diagnosis),
        early=f"early: {formatting.count(diagnosis.vitals.measured_steps, 'measured step')}" if early else "",
        risk=f"{RISK_MARK} {formatting.clean(risk)}" if risk else "",
        advice=None if first is None else _advice(*first),
    )


def _advice(finding: Finding, first: Prescription) -> Advice:
    return Advice(**vars(prescription(first)), page=_page(finding.rule), hint=finding.kind == "hint")


def prescription(cure: Prescription) -> PrescriptionShown:
    """Converts a prescription to plain data, with its forecast and its code."""
    return PrescriptionShown(
        text=formatting.clean(cure.text),
        predicted=predicted_words(cure),
        settings=cure.settings,
        code=formatting.clean(cure.code, 4000),
        safety=SAFETY_WORDS[cure.safety],
        changes=formatting.clean(cure.changes),
    )


def _page(rule: str) -> tuple[Paragraph, ...]:
    page = next((cause.page for cause in every_cause() if cause.name == rule), "")
    return tuple(Paragraph(*part) for part in paragraphs(page))


def finding(finding: Finding, vitals: Vitals) -> FindingShown:
    """Converts a finding to plain data, with its price, its evidence and its cures."""
    return FindingShown(
        kind=finding.kind,
        share=finding.cost_share,
        headline=formatting.clean(finding.headline),
        price=price(finding, vitals),
        risk=formatting.clean(finding.risk),
        evidence=tuple(formatting.clean(line) for line in finding.evidence),
        prescriptions=tuple(prescription(cure) for cure in finding.prescriptions),
        rule=finding.rule,
        page=_page(finding.rule),
    )


def silent(diagnosis: Diagnosis) -> tuple[Silence, ...]:
    """Returns the causes that could not be judged, one entry per reason."""
    return tuple(
        Silence(why, formatting.count(len(names), "cause"), ", ".join(names), folded=len(names) > FEW_NAMES)
        for why, names in silences(diagnosis).items()
    )


def footer(shown: PanelInput) -> Footer:
    """Returns the overhead of measuring and the notes, without duplicates."""
    judged = shown.diagnosis.notes if shown.diagnosis is not None else ()
    notes = list(dict.fromkeys(formatting.clean(note) for note in (*judged, *shown.notes)))
    if len(notes) > MOST_NOTES:
        more = formatting.count(len(notes) - MOST_NOTES, "more note")
        notes = [*notes[:MOST_NOTES], f"The recording has {more}."]
    own = overhead(shown.diagnosis.vitals) if shown.diagnosis is not None else ""
    return Footer(own, tuple(notes), formatting.count(len(notes), "note"))
