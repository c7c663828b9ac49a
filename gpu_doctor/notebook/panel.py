"""What the panel shows, as plain data: a pure function of a case as it stands; the page only draws it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpu_doctor import wording
from gpu_doctor.diagnosis import Diagnosis
from gpu_doctor.drawing import PHASE_COLOURS
from gpu_doctor.effect import Effect
from gpu_doctor.knobs.knob import Knob, KnobTable
from gpu_doctor.recording import PHASES, Recording, SettingValue, Setup, describe
from gpu_doctor.rules import RULES
from gpu_doctor.rules.rule import Finding, Prescription
from gpu_doctor.vitals import Vitals, measure

STATUS: Final = {
    "starting": "starting",
    "recording": "recording",
    "trial": "trial running",
    "treating": "treating",
    "idle": "finished",
}
VERDICT_MARKS: Final = {"faster": "▲ faster", "slower": "▼ slower", "no-difference": "= no difference"}


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
    setup: Setup = field(default_factory=Setup)
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


def state(shown: PanelInput, knobs: KnobTable) -> dict[str, Any]:
    """Everything the page draws, as JSON-able data; numbers are in words already."""
    vitals = shown.diagnosis.vitals if shown.diagnosis is not None else None
    return {
        "status": shown.status,
        "header": _header(shown),
        "message": shown.message,
        "verdict": _verdict(shown),
        "anatomy": _anatomy(vitals),
        "knobs": [_knob(knob, shown.setup) for knob in knobs.values()],
        "rows": _rows(shown),
        "findings": [_finding(one) for one in shown.diagnosis.findings] if shown.diagnosis is not None else [],
        "silent": [[one.rule, one.reason] for one in shown.diagnosis.silent] if shown.diagnosis is not None else [],
        "footer": _footer(shown, vitals),
        "marks": [],
    }


def _header(shown: PanelInput) -> dict[str, Any]:
    setup, progress = shown.setup, shown.progress
    gpus = [one.name for one in setup.devices]
    parts = [
        wording.clean(gpus[0] if gpus else "no GPU: judging the CPU as the device", 60),
        f"{setup.usable_cores:g} cores",
        f"torch {setup.torch_version}" if setup.torch_version else "",
    ]
    live = [wording.clock(shown.elapsed_s), wording.count(shown.step_count, "step")]
    if shown.samples_per_s is not None:
        live.append(wording.rate(shown.samples_per_s))
    if progress is not None:
        left = "" if progress.seconds_left is None else f", at most {progress.seconds_left:.0f} s left"
        live = [f"{progress.text}: step {progress.step} of {progress.steps}{left}"]
    return {
        "machine": " · ".join(part for part in parts if part),
        "status": STATUS.get(shown.status, shown.status),
        "live": " · ".join(live),
        "busy": shown.status in ("recording", "trial", "treating"),
    }


def _verdict(shown: PanelInput) -> dict[str, Any]:
    diagnosis = shown.diagnosis
    if diagnosis is None or (diagnosis.bottleneck == "unknown" and shown.status == "recording"):
        text = "Listening: the first verdict comes after 5 steps." if shown.status != "idle" else "No run yet."
        return {"class": "", "text": text, "early": False, "advice": None}
    top = diagnosis.findings[0] if diagnosis.findings else None
    first = top.prescriptions[0] if top is not None and top.prescriptions else None
    return {
        "class": diagnosis.bottleneck,
        "text": wording.clean(diagnosis.verdict),
        "early": diagnosis.early,
        "advice": None if first is None or top is None else {**_prescription(first), "rule": top.rule},
    }


def _prescription(one: Prescription) -> dict[str, Any]:
    predicted = None
    if one.predicted_speedup is not None:
        ends = wording.interval(one.predicted_low, one.predicted_high)
        predicted = wording.forecast(one.predicted_speedup) + (f" ({ends})" if ends else "")
    return {
        "text": one.text,
        "predicted": predicted,
        "settings": dict(one.settings),
        "code": one.code,
        "safety": one.safety.value,
        "changes": one.changes,
    }


def _anatomy(vitals: Vitals | None) -> dict[str, Any]:
    if vitals is None or vitals.step_wall_s is None:
        return {"step": "", "parts": []}
    parts = []
    for phase in (*PHASES, "other"):
        share = getattr(vitals, f"{phase}_share")
        if share is not None and share >= 0.0005:
            parts.append(
                {
                    "label": wording.PHASE_LABELS.get(phase, phase),
                    "share": share,
                    "colour": PHASE_COLOURS[phase],
                    "words": f"{wording.seconds(share * vitals.step_wall_s)}, {wording.share(share)}",
                }
            )
    return {"step": wording.seconds(vitals.step_wall_s), "parts": parts}


def _knob(knob: Knob, setup: Setup) -> dict[str, Any]:
    found = knob.found(setup)
    choices = [
        {"value": choice.value, "label": choice.label, "refusal": choice.refusal} for choice in knob.choices(setup)
    ]
    free = [choice for choice in choices if not choice["refusal"] and choice["value"] != found]
    refusals = [choice["refusal"] for choice in choices if choice["refusal"]]
    return {
        "name": knob.name,
        "label": knob.label,
        "front": knob.front,
        "found": found,
        "choices": choices,
        "refusal": "" if free else (refusals[0] if refusals else "There is nothing to turn in this loop."),
        "safety": knob.safety.value,
        "changes": knob.changes,
    }


def _rows(shown: PanelInput) -> list[list[str]]:
    """The runs table: run, settings, samples/s, against the baseline, predicted, wait, GPU, peak, loss."""
    rows = []
    for number, recording in enumerate(shown.recordings):
        vitals = measure(recording)
        name = "baseline" if number == 0 and not recording.settings else f"run {number + 1}"
        rows.append(
            [
                name,
                describe(recording.settings),
                wording.rate(vitals.samples_per_s, ""),
                "1.00x" if name == "baseline" else wording.DASH,
                wording.DASH,
                wording.share(vitals.data_wait_share),
                wording.percent(vitals.gpu_util_pct, wording.DASH),
                wording.size(vitals.peak_bytes),
                wording.loss(vitals.final_loss),
            ]
        )
    return rows + [_trial_row(number, effect) for number, effect in enumerate(shown.effects, 1)]


def _trial_row(number: int, effect: Effect) -> list[str]:
    against = VERDICT_MARKS.get(effect.verdict, effect.verdict)
    measured = wording.speedup(effect.speedup, effect.low, effect.high)
    loss = f"{wording.loss(effect.baseline_loss)} → {wording.loss(effect.candidate_loss)}"
    parity = wording.parity(effect.loss_drift)
    return [
        f"trial {number}",
        describe(effect.settings)
        + (f" (against {describe(effect.baseline_settings)})" if effect.baseline_settings else ""),
        wording.rate(effect.candidate_samples_per_s, "", wording.DASH),
        f"{measured} {against}" if effect.speedup is not None else wording.clean(f"{effect.outcome}: {effect.reason}"),
        wording.forecast(effect.predicted_speedup, wording.DASH),
        wording.share(effect.candidate_wait_share, wording.DASH),
        wording.DASH,
        wording.size(effect.peak_bytes, wording.DASH),
        f"{loss} ({parity})" if parity else loss if effect.candidate_loss is not None else wording.DASH,
    ]


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "headline": wording.clean(finding.headline),
        "share": wording.share(finding.cost_share),
        "evidence": [wording.clean(one) for one in finding.evidence],
        "prescriptions": [_prescription(one) for one in finding.prescriptions],
        "page": next((rule.page for rule in RULES if rule.name == finding.rule), ""),
    }


def _footer(shown: PanelInput, vitals: Vitals | None) -> dict[str, Any]:
    measured = (
        "" if vitals is None or not vitals.measured_steps else wording.count(vitals.measured_steps, "measured step")
    )
    warm = "" if vitals is None or not vitals.warmup_steps else f"{vitals.warmup_steps} of warm-up left out"
    own = "" if vitals is None or vitals.overhead_share is None else f"own cost {wording.share(vitals.overhead_share)}"
    return {
        "text": " · ".join(one for one in (measured, warm, own) if one),
        "notes": [wording.clean(note) for note in shown.notes],
    }
