"""The sections of a report in their order. The text, the static HTML and the panel are all built from this list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from gpu_doctor.diagnosis import Diagnosis
from gpu_doctor.diagnosis import as_html as sheet
from gpu_doctor.diagnosis import as_text as lines
from gpu_doctor.diagnosis.words import filling
from gpu_doctor.elements import section
from gpu_doctor.job import Job
from gpu_doctor.labels import LABELS
from gpu_doctor.recording import Recording
from gpu_doctor.report import as_html, text_parts
from gpu_doctor.report import panel_parts as parts
from gpu_doctor.report.before_after import newest
from gpu_doctor.report.ceiling import ceiling_of
from gpu_doctor.report.look import look_html, look_shown
from gpu_doctor.report.panel_input import PanelInput
from gpu_doctor.report.plan import plan_html, plan_shown
from gpu_doctor.report.plots import plots
from gpu_doctor.report.proved import proved
from gpu_doctor.report.ranks import ranks_shown
from gpu_doctor.report.runs import Row, rows
from gpu_doctor.report.searches import largest_html, largest_shown, sweep_html, sweep_shown
from gpu_doctor.report.trials import Sides, sides_html, sides_of, sides_text
from gpu_doctor.trials import Largest, Look, Plan, Sweep
from gpu_doctor.trials.compare import Effect

if TYPE_CHECKING:  # a case brings torch, which a report can do without
    from gpu_doctor.trials import Case


@dataclass(frozen=True)
class Reported:
    """The content of a report: a diagnosis with the runs and trials of its case."""

    diagnosis: Diagnosis
    recordings: Sequence[Recording] = ()
    """Runs of the case, oldest first."""
    effects: Sequence[Effect] = ()
    """Effects of the trials, oldest first."""
    trials: Sequence[Sides] = ()
    """Recordings of the trials (`Case.trials`)."""
    title: str = LABELS.product
    """Name of the case."""
    notes: Sequence[str] = ()
    """Notes in addition to those of the run and of the diagnosis."""
    plan: Plan | None = None
    """Plan of the last treatment."""
    sweep: Sweep | None = None
    largest: Largest | None = None
    look: Look | None = None
    job: Job | None = None
    price: float | None = None
    """Cost of the machine in dollars per hour; None if unknown."""

    @classmethod
    def of(cls, case: Case, diagnosis: Diagnosis, notes: Sequence[str] = ()) -> Reported:
        """Builds a report from a case.

        Args:
            case: case with at least one run or trial.
            diagnosis: diagnosis of the newest run.
            notes: notes in addition to those of the run and of the diagnosis.
        """
        written = (case.baseline,) if case.baseline is not None else ()
        return cls(
            diagnosis,
            tuple(case.recordings) or written,
            tuple(case.effects),
            tuple(case.trials),
            title=case.name,
            notes=notes,
            plan=case.plans[-1] if case.plans else None,
            sweep=case.sweeps[-1] if case.sweeps else None,
            largest=case.largest,
            look=case.looked,
            job=case.job,
            price=case.price,
        )

    @property
    def run(self) -> Recording | None:
        """The recording that was diagnosed, found by its setup and settings, else the newest."""
        vitals = self.diagnosis.vitals
        newest_first = self.recordings[::-1]
        judged = (
            recording
            for recording in newest_first
            if recording.setup is vitals.setup and recording.settings == vitals.settings
        )
        return next(chain(judged, newest_first), None)

    @cached_property
    def sides(self) -> Sequence[Sides | None]:
        """The recordings of each effect, None for a trial that left none."""
        return sides_of(self.effects, self.trials)

    @property
    def all_notes(self) -> list[str]:
        """The notes of the run, the diagnosis and the report, without duplicates."""
        recorded = self.run.notes if self.run is not None else ()
        return list(dict.fromkeys((*recorded, *self.diagnosis.notes, *self.notes)))


@dataclass(frozen=True)
class Section:
    """A part of the report, as functions that render it; they return empty text if there is nothing to show."""

    name: str
    text: Callable[[Reported], str]
    html: Callable[[Reported], str]
    panel: Callable[[PanelInput], dict[str, Any]]
    """Returns pieces of the panel's state by their names in `contract.PanelState`."""


def _result(shown: Reported) -> str:
    found = proved(shown.effects, shown.plan, price=shown.price)
    return f"{found.text}. {found.more}" if found is not None else ""


def _anatomy_text(shown: Reported) -> str:
    vitals = shown.diagnosis.vitals
    bound = ceiling_of(shown.effects, vitals)
    limit = lines.wrapped(bound.text, "  ") if bound is not None else ""
    parts = (lines.anatomy(vitals), limit, text_parts.compared(newest(shown.effects, shown.sides)))
    return "\n".join(part for part in parts if part)


def _anatomy_html(shown: Reported) -> str:
    vitals = shown.diagnosis.vitals
    bound = ceiling_of(shown.effects, vitals)
    mark, limit = (bound.share, bound.text) if bound is not None else (None, "")
    return sheet.anatomy(vitals, mark, limit) + as_html.compared(newest(shown.effects, shown.sides))


def _runs_text(shown: Reported) -> str:
    # The header has the figures of a single run already.
    if not shown.effects:
        return ""
    return text_parts.runs(_rows(shown), shown.diagnosis.vitals.on_gpu, shown.effects)


def _runs_html(shown: Reported) -> str:
    if not (shown.recordings or shown.effects):
        return ""
    return as_html.runs(_rows(shown), shown.diagnosis.vitals.on_gpu, shown.effects)


def _rows(shown: Reported) -> list[Row]:
    return rows(shown.recordings, shown.effects, shown.sides, shown.diagnosis.vitals.on_gpu)


def _pictures_only(_: Reported) -> str:
    """Returns '': the section consists of pictures, which a terminal cannot draw."""
    return ""


def _elsewhere(_: PanelInput) -> dict[str, Any]:
    """Returns no pieces: the panel shows the section's content elsewhere.

    A trial unfolds in its row of the table, and source lines stand in a finding's evidence.
    """
    return {}


def _findings_panel(shown: PanelInput) -> dict[str, Any]:
    found = shown.diagnosis
    return {
        "findings": () if found is None else tuple(parts.finding(finding, found.vitals) for finding in found.findings)
    }


def _hints_panel(shown: PanelInput) -> dict[str, Any]:
    found = shown.diagnosis
    return {"hints": () if found is None else tuple(parts.finding(hint, found.vitals) for hint in found.hints)}


def _silent_panel(shown: PanelInput) -> dict[str, Any]:
    found = shown.diagnosis
    return {"silent": () if found is None else parts.silent(found)}


SECTIONS: Final = (
    Section(
        "header",
        lambda r: lines.header(r.diagnosis.vitals, r.run),
        lambda r: sheet.header(r.diagnosis.vitals, r.run, r.title),
        lambda p: {"header": parts.header(p)},
    ),
    Section(
        "result",
        lambda r: lines.wrapped(_result(r)),
        lambda r: as_html.result(proved(r.effects, r.plan, price=r.price)),
        lambda p: {"result": parts.result(p)},
    ),
    Section(
        "verdict",
        lambda r: lines.verdict(r.diagnosis, r.price),
        lambda r: sheet.verdict(r.diagnosis, r.price),
        lambda p: {"verdict": parts.verdict(p)},
    ),
    Section(
        "anatomy",
        _anatomy_text,
        _anatomy_html,
        lambda p: {"anatomy": parts.anatomy(p)},
    ),
    Section(
        "plots",
        _pictures_only,
        lambda r: plots(r.run, filling(r.diagnosis.vitals)) if r.run is not None else "",
        lambda p: {"filling": filling(p.diagnosis.vitals) if p.diagnosis is not None else ""},
    ),
    Section(
        "plan",
        lambda r: str(r.plan) if r.plan is not None else "",
        lambda r: plan_html(r.plan) if r.plan is not None else "",
        lambda p: {"plan": plan_shown(p.plan) if p.plan is not None else None},
    ),
    Section(
        "sweep",
        lambda r: str(r.sweep) if r.sweep is not None else "",
        lambda r: sweep_html(r.sweep) if r.sweep is not None else "",
        lambda p: {"sweep": sweep_shown(p.sweep) if p.sweep is not None else None},
    ),
    Section(
        "largest batch",
        lambda r: lines.wrapped(str(r.largest)) if r.largest is not None else "",
        lambda r: largest_html(r.largest) if r.largest is not None else "",
        lambda p: {"largest": largest_shown(p.largest) if p.largest is not None else None},
    ),
    Section(
        "look",
        lambda r: str(r.look) if r.look is not None else "",
        lambda r: look_html(r.look) if r.look is not None else "",
        lambda p: {"look": look_shown(p.look) if p.look is not None else None},
    ),
    Section(
        "ranks",
        lambda r: str(r.job) if r.job is not None else "",
        lambda r: section(r.job._repr_html_()) if r.job is not None else "",
        lambda p: {"ranks": ranks_shown(p.job) if p.job is not None else None},
    ),
    Section("runs", _runs_text, _runs_html, lambda p: {"table": parts.table(p)}),
    Section(
        "trials",
        lambda r: "\n".join(lines.wrapped(line) for line in sides_text(r.effects, r.sides)),
        lambda r: sides_html(r.effects, r.sides),
        _elsewhere,
    ),
    Section(
        "findings",
        lambda r: lines.findings(r.diagnosis),
        lambda r: sheet.findings(r.diagnosis),
        _findings_panel,
    ),
    Section("hints", lambda r: lines.hints(r.diagnosis), lambda r: sheet.hints(r.diagnosis), _hints_panel),
    Section(
        "lines",
        _pictures_only,
        lambda r: sheet.source(r.diagnosis.vitals.source, r.diagnosis.vitals.lines),
        _elsewhere,
    ),
    Section(
        LABELS.not_judged,
        lambda r: lines.silent(r.diagnosis),
        lambda r: sheet.silent(r.diagnosis),
        _silent_panel,
    ),
    Section(
        "footer",
        lambda r: lines.footer(r.diagnosis.vitals, r.all_notes),
        lambda r: sheet.footer(r.diagnosis.vitals, r.all_notes),
        lambda p: {"footer": parts.footer(p)},
    ),
)
