"""What the panel shows, and how its run stands, as plain data: a pure function of a case; the page only draws it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis import FEWEST_STEPS, Diagnosis, Finding, Prescription, Vitals, every_rule, paragraphs
from gpu_doctor.recording import Recording, SettingValue, Setup, describe
from gpu_doctor.report.panel.controls import UNKNOWN, controls
from gpu_doctor.report.panel.results import anatomy, largest_state, plan_state, sweep_state
from gpu_doctor.report.panel.runs_table import runs
from gpu_doctor.report.svg import PHASE_COLOURS
from gpu_doctor.report.trials import Sides
from gpu_doctor.report.words import FEW_NAMES, RISK_MARK, SAFETY_WORDS, accent, predicted_words, price, silences
from gpu_doctor.trials import SWEEP_TRIALS, Largest, Plan, Sweep, no_largest
from gpu_doctor.trials.compare import Effect
from gpu_doctor.trials.knobs import KnobTable

STATUS: Final = {
    "starting": "starting",
    "waiting": "waiting for the kernel",
    "recording": "recording",
    "trial": "trial",
    "treating": "treating",
    "sweeping": "sweep",
    "searching": "looking for the largest batch",
    "idle": "finished",
}
BUSY: Final = ("waiting", "recording", "trial", "treating", "sweeping", "searching")
SETTLED: Final = ("waiting", "idle")
"""Nothing runs now: what was seen is all there is."""
_NEUTRAL: Final = PHASE_COLOURS["other"]
MOST_NOTES: Final = 12
PROMISED_S: Final = 5.0
"""A first verdict comes within so many seconds of a loop whose steps are short; then it is said what it waits for."""


@dataclass(frozen=True)
class Progress:
    """How far a trial is."""

    step: int
    steps: int
    seconds_left: float | None
    text: str


@dataclass(frozen=True)
class PanelInput:
    """A case as it stands."""

    status: str = "starting"
    """One of STATUS."""
    name: str = ""
    """What the person called the run; empty where it has no name of theirs."""
    setup: Setup = field(default_factory=Setup)
    turned: Mapping[str, SettingValue] = field(default_factory=dict)
    """What was turned when the setup was found; empty for a run as written."""
    diagnosis: Diagnosis | None = None
    recordings: tuple[Recording, ...] = ()
    effects: tuple[Effect, ...] = ()
    settings: Mapping[str, SettingValue] = field(default_factory=dict)
    """What the running run or trial side is turned to."""
    progress: Progress | None = None
    elapsed_s: float = 0.0
    step_count: int = 0
    samples_per_s: float | None = None
    source: str = ""
    notes: tuple[str, ...] = ()
    message: str = ""
    """One sentence: why a request was refused, what went wrong, what a treatment found."""
    trials: tuple[Sides, ...] = ()
    """The recordings that the effects left, as `Case.trials` has them."""
    plan: Plan | None = None
    """What the last treatment arrived at."""
    sweep: Sweep | None = None
    largest: Largest | None = None
    """What the last sweep, and the last search for the largest batch, found."""
    fixes: Mapping[str, Any] = field(default_factory=dict)
    """The changes of the user's cells that were unfolded (`results.fix_shown`), by `describe(settings)`."""
    before: list[dict[str, str]] | None = None
    """What to know before a trial (`notebook/details.py`), None while nobody asked."""
    output: dict[str, Any] | None = None
    """What the last run for real wrote (`RealOutput.shown`)."""
    stop_live: bool = True
    """A click on Stop is heard while the cell runs; else the panel says how to interrupt the kernel."""


def state(shown: PanelInput, knobs: KnobTable) -> dict[str, Any]:
    """Everything the page draws, by section, ready for JSON; figures are in words already."""
    diagnosis = shown.diagnosis
    vitals = diagnosis.vitals if diagnosis is not None else None
    known = shown.setup != Setup() and (shown.status != "starting")
    return {
        "status": shown.status,
        "busy": shown.status in BUSY,
        "header": _header(shown),
        "message": formatting.clean(shown.message or raised(shown), 600),
        "verdict": _verdict(shown),
        "anatomy": anatomy(vitals, shown.status in SETTLED),
        "knobs": controls(knobs, shown.setup, known, shown.turned),
        "table": runs(shown.recordings, shown.effects, shown.setup.on_gpu, shown.trials),
        "plan": plan_state(shown.plan),
        "sweep": sweep_state(shown.sweep),
        "sweepMost": SWEEP_TRIALS,
        "largest": largest_state(shown.largest),
        "noLargest": no_largest(shown.setup) if known else UNKNOWN,
        "fixes": dict(shown.fixes),
        "before": shown.before,
        "output": shown.output,
        "findings": [_finding(one, diagnosis.vitals) for one in diagnosis.findings] if diagnosis is not None else [],
        "silent": _silent(diagnosis) if diagnosis is not None else [],
        "footer": _footer(shown, vitals),
    }


def _header(shown: PanelInput) -> dict[str, Any]:
    setup, progress = shown.setup, shown.progress
    running = shown.status in BUSY
    head: dict[str, Any] = {
        "machine": _machine(setup, shown.step_count),
        "status": ended(shown) or STATUS.get(shown.status, shown.status),
        "failed": failed(shown),
        "name": formatting.clean(shown.name, 80),
        "clock": formatting.clock(shown.elapsed_s),
        "steps": formatting.count(shown.step_count, "step"),
        "rate": formatting.rate(shown.samples_per_s, missing=""),
        "settings": formatting.clean(describe(shown.settings), 120) if shown.settings and running else "",
        "stop": ""
        if shown.stop_live or shown.status == "waiting"
        else "To stop, interrupt the kernel (Kernel menu, or the stop button).",
        "progress": None,
    }
    if progress is not None:
        left = progress.seconds_left
        head["progress"] = {
            "text": formatting.clean(progress.text, 120),
            "steps": f"step {progress.step} of {progress.steps}" if progress.steps else f"step {progress.step}",
            "share": min(progress.step / progress.steps, 1.0) if progress.steps else 0.0,
            "left": "" if left is None else f"at most {formatting.countdown(left)} left",
        }
    return head


def _machine(setup: Setup, steps: int) -> str:
    """The device that is judged, its host, its torch; nothing about a GPU before it was looked for."""
    if setup == Setup():
        return ""
    where = "no GPU: judging the CPU as the device"
    if setup.devices:
        index = setup.device.partition(":")[2]
        used = [one for one in setup.devices if str(one.index) == (index or "0")] or list(setup.devices)
        where = formatting.clean(used[0].name, 60)
        if not setup.on_gpu and steps:
            where = f"{where} present, but the loop trains on the {setup.device.partition(':')[0]}"
    elif setup.on_gpu:
        where = formatting.clean(setup.device, 60)
    torch = f"torch {formatting.clean(setup.torch_version.partition('+')[0], 20)}" if setup.torch_version else ""
    return " · ".join(part for part in (where, formatting.cores(setup.usable_cores), torch) if part)


def _verdict(shown: PanelInput) -> dict[str, Any]:
    diagnosis = shown.diagnosis
    few = diagnosis is not None and diagnosis.vitals.measured_steps < FEWEST_STEPS and not diagnosis.findings
    if diagnosis is None or (few and shown.status not in SETTLED):
        return {
            "text": awaited(shown),
            "kind": "",
            "accent": _NEUTRAL,
            "early": "",
            "risk": "",
            "advice": None,
        }
    top = diagnosis.findings[0] if diagnosis.findings else None
    first = top.prescriptions[0] if top is not None and top.prescriptions else None
    early = diagnosis.early and not few
    return {
        "text": formatting.clean(diagnosis.verdict),
        "kind": "" if few else formatting.BOTTLENECK_LABELS.get(diagnosis.bottleneck, diagnosis.bottleneck),
        "accent": accent(diagnosis),
        "early": f"early: {formatting.count(diagnosis.vitals.measured_steps, 'measured step')}" if early else "",
        "risk": "" if top is None or not top.risk else f"{RISK_MARK} {formatting.clean(top.risk)}",
        "advice": None if top is None or first is None else {**_prescription(first), **_page(top.rule)},
    }


def _prescription(one: Prescription) -> dict[str, Any]:
    return {
        "text": formatting.clean(one.text),
        "predicted": predicted_words(one),
        "settings": dict(one.settings),
        "code": formatting.clean(one.code, 4000),
        "safety": SAFETY_WORDS[one.safety],
        "changes": formatting.clean(one.changes),
    }


def _page(rule: str) -> dict[str, Any]:
    page = next((one.page for one in every_rule() if one.name == rule), "")
    return {"rule": rule, "page": [{"title": title, "text": text} for title, text in paragraphs(page)]}


def _finding(finding: Finding, vitals: Vitals) -> dict[str, Any]:
    return {
        "headline": formatting.clean(finding.headline),
        "price": price(finding, vitals),
        "risk": formatting.clean(finding.risk),
        "evidence": [formatting.clean(one) for one in finding.evidence],
        "prescriptions": [_prescription(one) for one in finding.prescriptions],
        **_page(finding.rule),
    }


def _silent(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """Rules that could not judge, one entry a reason."""
    return [
        {"reason": why, "number": len(names), "rules": ", ".join(names), "folded": len(names) > FEW_NAMES}
        for why, names in silences(diagnosis).items()
    ]


def _footer(shown: PanelInput, vitals: Vitals | None) -> dict[str, Any]:
    own = vitals.overhead_share if vitals is not None and vitals.steps else None
    judged = shown.diagnosis.notes if shown.diagnosis is not None else ()
    notes = list(dict.fromkeys(formatting.clean(note) for note in (*judged, *shown.notes)))
    if len(notes) > MOST_NOTES:
        more = formatting.count(len(notes) - MOST_NOTES, "more note")
        notes = [*notes[:MOST_NOTES], f"The recording has {more}."]
    return {"overhead": f"overhead {formatting.share(own)}" if own is not None else "", "notes": notes}


def awaited(shown: PanelInput) -> str:
    """What the verdict waits for, or why there is none."""
    if shown.status == "starting":
        return "Ready: the verdict comes with the first steps."
    if shown.status in ("waiting", "idle"):
        return "No verdict: the notes say why." if shown.recordings else "Nothing was recorded yet."
    if shown.elapsed_s < PROMISED_S:
        return "Listening to the loop: the verdict comes within 30 steps or 5 seconds."
    if not shown.step_count:
        return "No training step yet: the verdict comes with the first ones."
    measured = shown.diagnosis.vitals.measured_steps if shown.diagnosis is not None else 0
    return f"Listening to the loop: {measured} of the {FEWEST_STEPS} steps needed for a verdict are measured."


def ended(shown: PanelInput) -> str:
    """How the newest run ended, if nothing goes on and it did not simply come to its end."""
    if shown.status != "idle" or _outcome(shown) == "completed":
        return ""
    return formatting.OUTCOME_LABELS.get(_outcome(shown), "")


def failed(shown: PanelInput) -> bool:
    """Whether the newest run broke, and nothing goes on."""
    return shown.status == "idle" and _outcome(shown) in ("failed", "out-of-memory")


def raised(shown: PanelInput) -> str:
    """What the cell raised, if it did: its traceback stands below all that it wrote."""
    if shown.status != "idle" or _outcome(shown) != "failed" or shown.effects:
        return ""
    run = shown.recordings[-1]
    steps = len(run.steps)
    seen = f"the figures show the {formatting.count(steps, 'step')} before it" if steps else "no step had ended"
    return f"The cell raised {formatting.clean(run.reason, 300) or 'an exception'}; {seen}."


def _outcome(shown: PanelInput) -> str:
    return shown.recordings[-1].outcome if shown.recordings else "completed"
