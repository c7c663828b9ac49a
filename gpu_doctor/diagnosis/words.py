"""What text, HTML and panel say of a diagnosis, in words but not yet laid out: facts, prices, what to do first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.as_data import DiagnosisData, anatomy
from gpu_doctor.diagnosis.rules import every_cause
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.silent_rules import by_reason
from gpu_doctor.diagnosis.verdict import ended_the_run
from gpu_doctor.diagnosis.vitals.arithmetic import arithmetic_kind
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.formatting import clean
from gpu_doctor.labels import OUTCOME_LABELS, heading
from gpu_doctor.recording import Recording, Setup, is_elsewhere
from gpu_doctor.svg import PHASE_COLOURS

__all__ = [
    "FEW_NAMES",
    "NO_FORECAST",
    "NO_GPU",
    "RISK_MARK",
    "SAFETY_WORDS",
    "accent",
    "anatomy_rows",
    "filling",
    "first_cure",
    "first_step",
    "first_words",
    "footer",
    "forecast_words",
    "hourly_loss",
    "leading_risk",
    "machine_facts",
    "overhead",
    "predicted_words",
    "price",
    "run_facts",
    "silences",
    "speed",
    "verdict_words",
]

NO_GPU: Final = "no GPU: judging the CPU as the device"
NO_FORECAST: Final = "no forecast: try it"
WORTH_A_TRIAL: Final = "worth a trial"
KIND_WORDS: Final = {"lost": "lost", "at-most": "at most"}
"""What stands before the share of a finding: a loss was measured, a bound is no promise."""
RISK_MARK: Final = "\u26a0"
"""Stands before the word that says it."""
SHOWN_SHARE: Final = 0.0005
"""Of a step: less is not told, and may be what rounding left of a difference."""
SHOWN_OURS: Final = 0.02
"""From this share of a step on, gpu_doctor's own time is a piece of the anatomy; the footer states it always."""
FEW_NAMES: Final = 3
"""So many silent rules are named beside their reason; more are counted, and named when it is unfolded."""
SAFETY_WORDS: Final[Mapping[Safety, str]] = {
    Safety.SAFE: "safe: the same training, faster",
    Safety.CHANGES_TRAINING: "changes the training",
    Safety.BY_HAND: "by hand",
}
_NEUTRAL: Final = PHASE_COLOURS["other"]
_HEALTHY: Final = "#009E73"
_ACCENTS: Final = {
    "input": PHASE_COLOURS["data_wait"],
    "transfer": PHASE_COLOURS["transfer"],
    "host": "#CC79A7",
    "compute": "#0072B2",
    "memory": "#0072B2",
    "hardware": "#CC79A7",
    "distributed": "#56B4E9",
}
_KINDS: Final = {"float32": "float32", "tf32": "TF32", "float16": "float16", "bfloat16": "bfloat16"}


def accent(diagnosis: DiagnosisData) -> str:
    """The colour beside the verdict, by the family of the rule that leads; the words beside it say the same."""
    top = diagnosis.findings[0] if diagnosis.findings else None
    if top is None:
        return _HEALTHY if diagnosis.bottleneck == "compute" else _NEUTRAL
    return _ACCENTS.get(next((one.family for one in every_cause() if one.name == top.rule), ""), _NEUTRAL)


def device_words(setup: Setup, judged: bool = True) -> str:
    """The device that the loop trains on; never a GPU that was not found.

    Args:
        setup: of the run.
        judged: a step was seen; before the first, nobody knows what a loop does with the card.
    """
    if setup.on_gpu:
        name = setup.card.name if setup.card is not None else ""
        return clean(name) or f"GPU {setup.gpu_index}"
    if setup.devices and not judged:
        return clean(setup.devices[0].name)
    if setup.devices:
        return f"CPU (the machine has {formatting.article(clean(setup.devices[0].name))}, but the loop does not use it)"
    return NO_GPU if setup.device == "cpu" else clean(setup.device)


def machine_facts(setup: Setup, judged: bool = True) -> list[str]:
    """Device, cores really usable, torch's version, the machine if it is another one; `judged` as in `device_words`."""
    facts = [device_words(setup, judged), formatting.cores(setup.usable_cores)]
    if is_elsewhere(setup):
        facts.append(f"measured on {clean(setup.host, 80)}")
    if setup.torch_version:
        facts.append(f"torch {clean(setup.torch_version, 40)}")
    return facts


def run_facts(vitals: Vitals, recording: Recording | None) -> list[str]:
    """How the run ended, how long it took, its steps and its speed."""
    facts = []
    if recording is not None:
        why = f": {clean(recording.reason)}" if recording.reason else ""
        facts.append(OUTCOME_LABELS.get(recording.outcome, clean(recording.outcome)) + why)
        facts.append(formatting.clock(recording.duration_s))
    facts.append(formatting.count(vitals.steps, "step"))
    if vitals.steps:
        facts += [speed(vitals), *efficiency(vitals)]
    return facts


def speed(vitals: Vitals) -> str:
    """Samples/s, or steps/s where the samples of a step are not known."""
    if vitals.samples_per_s is not None:
        return formatting.rate(vitals.samples_per_s)
    return formatting.rate(vitals.steps_per_s, "steps/s")


def verdict_words(diagnosis: DiagnosisData, price: float | None = None) -> str:
    """The verdict, marked where it is an early one, and what its loss costs at dollars an hour."""
    early = diagnosis.early and diagnosis.vitals.measured_steps > 0
    steps = formatting.count(diagnosis.vitals.measured_steps, "measured step")
    said = clean(diagnosis.verdict, 1000) + (f" (early: {steps})" if early else "")
    return " ".join(filter(None, (said, hourly_loss(diagnosis, price))))


def hourly_loss(diagnosis: DiagnosisData, price: float | None) -> str:
    """What the share that the first finding measured costs an hour; empty without a price or a measured share."""
    first = next(iter(diagnosis.findings), None)
    if price is None or first is None or first.cost_share is None:
        return ""
    bound = "at most " if first.kind == "at-most" else ""
    lost = formatting.dollars(price * first.cost_share)
    return f"{formatting.share(first.cost_share)} of {formatting.dollars(price)} an hour: {bound}{lost} an hour lost."


def anatomy_rows(vitals: Vitals) -> list[tuple[str, float, float]]:
    """Phase, share of the wall-clock (0..1) and seconds per step of every phase that shows, in the usual order."""
    return [row for row in anatomy(vitals) if row[1] >= (SHOWN_OURS if row[0] == "ours" else SHOWN_SHARE)]


def predicted_words(prescription: Prescription) -> str:
    """`predicted 2.9x (2.6-3.1)`, or that only a trial can tell."""
    if prescription.predicted_speedup is None:
        return NO_FORECAST if prescription.settings else ""
    low, high = prescription.predicted_low, prescription.predicted_high
    return f"predicted {forecast_words(prescription.predicted_speedup, low, high)}"


def forecast_words(speedup: float | None, low: float | None, high: float | None) -> str:
    """A forecast with its range: `2.9x (2.6-3.1)`; a dash where there is none."""
    ends = formatting.interval(low, high)
    return formatting.forecast(speedup, formatting.DASH) + (f" ({ends})" if ends else "")


def price(finding: Finding, vitals: Vitals) -> str:
    """What a finding costs (`lost 34 %`, `at most 21 %`), that it is a risk, or that only a trial can tell."""
    if ended_the_run(finding, vitals):
        return f"{RISK_MARK} ended the run"
    if finding.kind == "hint":
        return f"{RISK_MARK} risk" if finding.risk else WORTH_A_TRIAL
    return f"{KIND_WORDS[finding.kind]} {formatting.share(finding.cost_share)}"


def first_cure(diagnosis: DiagnosisData) -> tuple[Finding, Prescription] | None:
    """What to do first: the best cure of the first finding that has one, else of the first hint, with its finding."""
    told = (*diagnosis.findings, *diagnosis.hints)
    return next(((one, one.prescriptions[0]) for one in told if one.prescriptions), None)


def first_words(finding: Finding) -> str:
    """What stands before the cure of the finding that leads: a hint promises nothing."""
    return heading(WORTH_A_TRIAL) if finding.kind == "hint" else "Try"


def leading_risk(diagnosis: DiagnosisData) -> str:
    """The risk that stands under the verdict: that of what leads; empty where it is none."""
    return next((one.risk for one in (*diagnosis.findings, *diagnosis.hints)), "")


def first_step(diagnosis: DiagnosisData) -> Prescription | None:
    """The cure alone."""
    found = first_cure(diagnosis)
    return None if found is None else found[1]


def silences(diagnosis: DiagnosisData) -> dict[str, list[str]]:
    """Why rules were not judged -> their names; failures first, then the reason that most of them share."""
    return {clean(why): [clean(name) for name in names] for why, names in by_reason(diagnosis.silent).items()}


def footer(vitals: Vitals) -> str:
    """What the figures are made of, and what measuring cost."""
    said = f"Measured on {formatting.count(vitals.measured_steps, 'step')}"
    if vitals.warmup_steps:
        took = f" ({formatting.seconds(vitals.warmup_s)})" if vitals.warmup_s is not None else ""
        said += f"; {formatting.count(vitals.warmup_steps, 'step')} of warm-up left out{took}"
    own = overhead(vitals)
    return f"{said}{f'; {own}' if own else ''}."


def overhead(vitals: Vitals) -> str:
    """What measuring cost, and of how much what it is made of.

    Empty for a run without a loop, where it would be the share of starting and ending alone.
    """
    if not vitals.steps:
        return ""
    said = f"overhead at least {formatting.share(vitals.overhead_share)}"
    hooks = vitals.ours_share
    if hooks is None or max(hooks, vitals.overhead_share or 0.0) < SHOWN_OURS:
        return said
    return f"{said} of the run: gpu_doctor's hooks in the loop ({formatting.share(hooks)} of a step) and its threads"


def filling(vitals: Vitals) -> str:
    """What is known to fill the memory: `model 98 MiB, gradients at most 98 MiB, one batch 19 MiB`; else less."""
    model = vitals.setup.parameter_bytes
    known = {
        "model": model,
        "gradients at most": model if vitals.setup.optimizers else None,
        "one batch": vitals.batch_bytes,
    }
    return ", ".join(f"{name} {formatting.size(size)}" for name, size in known.items() if size)


def _of_peak(vitals: Vitals) -> str:
    """How much of the card's peak that is, with what activation checkpointing computes again."""
    written = arithmetic_kind(vitals.setup)
    kind, hfu = _KINDS.get(written, written), vitals.hfu_share
    if hfu is None:
        return f"; no {kind} peak is listed for this card" if vitals.on_gpu else ""
    return f", HFU {formatting.share(hfu)} of the card's dense {kind} peak"


def flops(per_s: float) -> str:
    """Arithmetic, in the prefix that leaves one to three digits before the point: `412 TFLOP/s`."""
    step = min(max(int(math.log10(per_s) // 3), 2), 5)
    return f"{per_s / 10 ** (3 * step):.3g} {'MGTP'[step - 2]}FLOP/s"


def efficiency(vitals: Vitals) -> list[str]:
    """`412 TFLOP/s, HFU 42 % of the card's dense bfloat16 peak`, `0.31 J/sample`, and where the card's time goes.

    The last by the card's own clock; empty where nothing was measured.
    """
    said = []
    if vitals.flops_per_s is not None and 0 < vitals.flops_per_s < math.inf:
        said.append(flops(vitals.flops_per_s) + _of_peak(vitals))
    if vitals.energy_per_sample_j is not None:
        said.append(f"{formatting.number(vitals.energy_per_sample_j)} J/sample")
    if vitals.gpu_gap_share is not None and vitals.gpu_forward_share is not None:
        parts = {"forward": vitals.gpu_forward_share, "backward": vitals.gpu_backward_share}
        parts |= {"optimizer": vitals.gpu_optimizer_share, "gaps": vitals.gpu_gap_share}
        told = ", ".join(f"{formatting.share(share)} {name}" for name, share in parts.items() if share)
        said.append(f"GPU time: {told}")
    return said
