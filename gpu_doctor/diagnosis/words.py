"""The words of a diagnosis that text, HTML and panel share: facts on machine and run, prices, what to try first."""

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
"""Kind of a finding -> words before its share: a loss was measured, a bound is no promise."""
RISK_MARK: Final = "\u26a0"
"""Sign before the word `risk`."""
SHOWN_SHARE: Final = 0.0005
"""Smallest share of a step that is shown; less may be a rounding error of a difference."""
SHOWN_OURS: Final = 0.02
"""Share of a step from which on gpu_doctor's own time is part of the anatomy; the footer always states it."""
FEW_NAMES: Final = 3
"""Most causes that are named beside the reason why they were not judged; more are counted, and named when unfolded."""
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
    """Returns the colour beside the verdict, by the family of the first finding; the words beside it say the same."""
    top = diagnosis.findings[0] if diagnosis.findings else None
    if top is None:
        return _HEALTHY if diagnosis.bottleneck == "compute" else _NEUTRAL
    return _ACCENTS.get(next((cause.family for cause in every_cause() if cause.name == top.rule), ""), _NEUTRAL)


def device_words(setup: Setup, judged: bool = True) -> str:
    """Names the device that the loop trains on; never a GPU that was not found.

    Args:
        setup: setup of the run.
        judged: True if a step was seen; before the first it is not known if the loop uses the GPU.
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
    """Lists the device, the usable cores, the machine if it is another one, and torch's version.

    Args:
        setup: setup of the run.
        judged: True if a step was seen (see `device_words`).
    """
    facts = [device_words(setup, judged), formatting.cores(setup.usable_cores)]
    if is_elsewhere(setup):
        facts.append(f"measured on {clean(setup.host, 80)}")
    if setup.torch_version:
        facts.append(f"torch {clean(setup.torch_version, 40)}")
    return facts


def run_facts(vitals: Vitals, recording: Recording | None) -> list[str]:
    """Lists how the run ended, how long it took, its steps and its speed."""
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
    """Formats the speed in samples/s, or in steps/s if the samples of a step are not known."""
    if vitals.samples_per_s is not None:
        return formatting.rate(vitals.samples_per_s)
    return formatting.rate(vitals.steps_per_s, "steps/s")


def verdict_words(diagnosis: DiagnosisData, price: float | None = None) -> str:
    """Returns the verdict, with a note if it is early, and what its loss costs at `price` dollars an hour."""
    early = diagnosis.early and diagnosis.vitals.measured_steps > 0
    steps = formatting.count(diagnosis.vitals.measured_steps, "measured step")
    verdict = clean(diagnosis.verdict, 1000) + (f" (early: {steps})" if early else "")
    return " ".join(filter(None, (verdict, hourly_loss(diagnosis, price))))


def hourly_loss(diagnosis: DiagnosisData, price: float | None) -> str:
    """Says what the first finding's share costs an hour; empty without a price or a measured share.

    Args:
        diagnosis: the diagnosis.
        price: price of an hour of this machine in dollars; None = not known.
    """
    first = next(iter(diagnosis.findings), None)
    if price is None or first is None or first.cost_share is None:
        return ""
    bound = "at most " if first.kind == "at-most" else ""
    lost = formatting.dollars(price * first.cost_share)
    return f"{formatting.share(first.cost_share)} of {formatting.dollars(price)} an hour: {bound}{lost} an hour lost."


def anatomy_rows(vitals: Vitals) -> list[tuple[str, float, float]]:
    """Returns phase, share of the wall-clock (0..1) and seconds per step of each phase that is large enough to show."""
    return [row for row in anatomy(vitals) if row[1] >= (SHOWN_OURS if row[0] == "ours" else SHOWN_SHARE)]


def predicted_words(prescription: Prescription) -> str:
    """Describes a prescription's forecast: `predicted 2.9x (2.6-3.1)`, or that there is none."""
    if prescription.predicted_speedup is None:
        return NO_FORECAST if prescription.settings else ""
    low, high = prescription.predicted_low, prescription.predicted_high
    return f"predicted {forecast_words(prescription.predicted_speedup, low, high)}"


def forecast_words(speedup: float | None, low: float | None, high: float | None) -> str:
    """Formats a forecast with its interval: `2.9x (2.6-3.1)`; a dash if there is none."""
    ends = formatting.interval(low, high)
    return formatting.forecast(speedup, formatting.DASH) + (f" ({ends})" if ends else "")


def price(finding: Finding, vitals: Vitals) -> str:
    """Describes a finding's cost: `lost 34 %`, `at most 21 %`, a risk, `worth a trial`, or that it ended the run."""
    if ended_the_run(finding, vitals):
        return f"{RISK_MARK} ended the run"
    if finding.kind == "hint":
        return f"{RISK_MARK} risk" if finding.risk else WORTH_A_TRIAL
    return f"{KIND_WORDS[finding.kind]} {formatting.share(finding.cost_share)}"


def first_cure(diagnosis: DiagnosisData) -> tuple[Finding, Prescription] | None:
    """Returns the first thing to try, with its finding.

    It is the best prescription of the first finding that has one, else of the first hint that has one.
    """
    shown = (*diagnosis.findings, *diagnosis.hints)
    return next(((finding, finding.prescriptions[0]) for finding in shown if finding.prescriptions), None)


def first_words(finding: Finding) -> str:
    """Returns the words before the first thing to try: `Worth a trial` for a hint, which promises nothing, or `Try`."""
    return heading(WORTH_A_TRIAL) if finding.kind == "hint" else "Try"


def leading_risk(diagnosis: DiagnosisData) -> str:
    """Returns the risk of the first finding or hint, to stand under the verdict; empty if it has none."""
    return next((finding.risk for finding in (*diagnosis.findings, *diagnosis.hints)), "")


def first_step(diagnosis: DiagnosisData) -> Prescription | None:
    """Returns the first thing to try (see `first_cure`), without its finding."""
    found = first_cure(diagnosis)
    return None if found is None else found[1]


def silences(diagnosis: DiagnosisData) -> dict[str, list[str]]:
    """Groups the causes that were not judged: reason -> their names, cleaned (see `by_reason`)."""
    return {clean(why): [clean(name) for name in names] for why, names in by_reason(diagnosis.silent).items()}


def footer(vitals: Vitals) -> str:
    """Says how many steps were measured, how many were warm-up, and what measuring cost."""
    measured = f"Measured on {formatting.count(vitals.measured_steps, 'step')}"
    if vitals.warmup_steps:
        took = f" ({formatting.seconds(vitals.warmup_s)})" if vitals.warmup_s is not None else ""
        measured += f"; {formatting.count(vitals.warmup_steps, 'step')} of warm-up left out{took}"
    own = overhead(vitals)
    return f"{measured}{f'; {own}' if own else ''}."


def overhead(vitals: Vitals) -> str:
    """Says what measuring cost, and from 2 % on also what the cost consists of.

    Empty for a run without steps, whose overhead would only be that of starting and ending.
    """
    if not vitals.steps:
        return ""
    cost = f"overhead at least {formatting.share(vitals.overhead_share)}"
    hooks = vitals.ours_share
    if hooks is None or max(hooks, vitals.overhead_share or 0.0) < SHOWN_OURS:
        return cost
    return f"{cost} of the run: gpu_doctor's hooks in the loop ({formatting.share(hooks)} of a step) and its threads"


def filling(vitals: Vitals) -> str:
    """Lists what is known to fill the memory, such as `model 98 MiB, gradients at most 98 MiB, one batch 19 MiB`."""
    model = vitals.setup.parameter_bytes
    known = {
        "model": model,
        "gradients at most": model if vitals.setup.optimizers else None,
        "one batch": vitals.batch_bytes,
    }
    return ", ".join(f"{name} {formatting.size(size)}" for name, size in known.items() if size)


def _of_peak(vitals: Vitals) -> str:
    """Says what part of the card's peak the loop reaches, operations that checkpointing recomputes included."""
    written = arithmetic_kind(vitals.setup)
    kind, hfu = _KINDS.get(written, written), vitals.hfu_share
    if hfu is None:
        return f"; no {kind} peak is listed for this card" if vitals.on_gpu else ""
    return f", HFU {formatting.share(hfu)} of the card's dense {kind} peak"


def flops(per_s: float) -> str:
    """Formats FLOP/s with the prefix that leaves one to three digits before the point: `412 TFLOP/s`."""
    step = min(max(int(math.log10(per_s) // 3), 2), 5)
    return f"{per_s / 10 ** (3 * step):.3g} {'MGTP'[step - 2]}FLOP/s"


def efficiency(vitals: Vitals) -> list[str]:
    """Lists arithmetic, energy and the GPU's phases, as far as they were measured.

    Such as `412 TFLOP/s, HFU 42 % of the card's dense bfloat16 peak`, `0.31 J/sample`, and the shares of the GPU's
    time, by its own clock.
    """
    facts = []
    if vitals.flops_per_s is not None and 0 < vitals.flops_per_s < math.inf:
        facts.append(flops(vitals.flops_per_s) + _of_peak(vitals))
    if vitals.energy_per_sample_j is not None:
        facts.append(f"{formatting.number(vitals.energy_per_sample_j)} J/sample")
    if vitals.gpu_gap_share is not None and vitals.gpu_forward_share is not None:
        parts = {"forward": vitals.gpu_forward_share, "backward": vitals.gpu_backward_share}
        parts |= {"optimizer": vitals.gpu_optimizer_share, "gaps": vitals.gpu_gap_share}
        shares = ", ".join(f"{formatting.share(share)} {name}" for name, share in parts.items() if share)
        facts.append(f"GPU time: {shares}")
    return facts
