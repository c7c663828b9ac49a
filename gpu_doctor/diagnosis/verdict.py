"""The bottleneck class of a run, and the verdict: one sentence for the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import every_cause
from gpu_doctor.diagnosis.rules.evidence import joined, phases
from gpu_doctor.diagnosis.rules.rule import NAMING_BAR, Finding
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.idle import behind_copies_share, round_trip_share
from gpu_doctor.diagnosis.vitals.lines import part
from gpu_doctor.diagnosis.vitals.own_code import mixed, outside_share, within_share

HEALTHY_COMPUTE: Final = 0.90
NOTHING_ELSE: Final = 0.10
"""Compute >= 90 % and nothing else >= 10 % of the wall-clock is compute-bound and healthy (TraceML 0.5)."""
BOUND_SHARE: Final = 0.20
"""Share of the wall-clock from which on waiting for data, copies or Python is the class (TraceML 0.5's upper bar)."""

MOSTLY: Final = 0.5
"""Smallest part of stack samples outside every phase that must be in torch for that time to be called computing."""


def classified(vitals: Vitals) -> str:
    """Returns the bottleneck class: by the exposed shares on a GPU, by the host's shares on a CPU device.

    Forward, backward, optimizer, the loss between them and evaluation are compute. On a GPU the rest of the gap, after
    exposed wait and transfer, is the host's: it could not launch in time. If the GPU outruns its host, launching and
    Python within steps are the host's too. NVML's utilisation is not used. If input, transfer or host takes a fifth, it
    names the class although compute takes more: computing is the loop's purpose. Making batches in the loop itself is
    the host's work. Round trips of tensors to the host within a step are transfer; they are taken out of compute, in
    which they hide.
    """
    wait, transfer = vitals.exposed_wait_share, vitals.exposed_transfer_share
    if vitals.on_gpu:
        if wait is None or vitals.gpu_gap_share is None:
            return "unknown"
        transfer = transfer or 0.0
        parts = {
            "input": wait,
            "transfer": transfer + vitals.tripped_share,
            "host": max(vitals.gpu_gap_share - wait - transfer - vitals.tripped_share, 0.0),
            "compute": vitals.gpu_busy_share or 0.0,
        }
        _move(parts, "host", "transfer", behind_copies_share(vitals))
        # The device's clock sees no gap inside a phase: while a tensor is at the host, the GPU seems busy until the
        # copy back, which the clock does see.
        _move(parts, "compute", "transfer", round_trip_share(vitals) - vitals.tripped_share)
        if vitals.gpu_outruns_host:  # a GPU that is done as soon as its host only seems busy within steps
            inside = (vitals.launching_share or 0.0) + max(
                vitals.outside_share - vitals.once_share - parts["host"], 0.0
            )
            _move(parts, "compute", "host", inside)
    else:
        parts = {
            "input": vitals.data_wait_share or 0.0,
            "transfer": vitals.transfer_share or 0.0,
            "host": max(vitals.outside_share - vitals.once_share, 0.0),
            "compute": _compute(vitals),
        }
    if not vitals.on_gpu and mixed(vitals):  # no events mark its training: all that is not plain Python counts as such
        least = min(parts["host"], vitals.backward_share or 0.0) if not vitals.forward_share else 0.0
        _move(parts, "host", "compute", max(parts["host"] - outside_share(vitals), least))
    if not vitals.on_gpu:  # while Python runs inside a forward, or before the backward, nothing is computed
        _move(parts, "compute", "host", within_share(vitals))
    largest = max(("input", "transfer", "host"), key=lambda name: parts[name])
    return largest if parts[largest] >= min(BOUND_SHARE, parts["compute"]) else "compute"


def _move(parts: dict[str, float], source: str, target: str, share: float) -> None:
    """Moves up to `share` from one part to another."""
    moved = min(max(share, 0.0), parts[source])
    parts[source] -= moved
    parts[target] = parts.get(target, 0.0) + moved


def _unseen_forward(vitals: Vitals) -> bool:
    """True if no forward was recorded although the loop runs backward: its forward is counted in `other`."""
    return not vitals.on_gpu and not vitals.forward_share and bool(vitals.backward_share)


def _part_in_torch(vitals: Vitals) -> float:
    """Part of the stack samples outside every phase that were in torch, 0..1; 0 without samples."""
    outside = vitals.outside_lines
    return part((line for line in outside if line.in_torch), outside)


def _compute(vitals: Vitals) -> float:
    """Returns the share of the wall-clock that computes: forward, loss, backward, optimizer and evaluation."""
    return vitals.together("forward", "loss", "backward", "optimizer", "evaluation")


def _computing(vitals: Vitals) -> str:
    """Names the phases that compute, with loss and evaluation if they take 5 % or more."""
    parts = phases(vitals)
    parts += [name for name in ("loss", "evaluation") if (getattr(vitals, f"{name}_share") or 0.0) >= NAMING_BAR]
    return joined(parts)


def verdict(bottleneck: str, findings: Sequence[Finding], hints: Sequence[Finding], vitals: Vitals) -> str:
    """Returns the verdict on a run with enough steps: its first finding, a risk, or what the device is busy with.

    A hint is never the verdict.
    """
    if findings:
        first = findings[0]
        return first.headline + ("" if first.cost_share is None else _beside(bottleneck, findings, vitals))
    if hints and hints[0].risk:  # a risk is the verdict only if no finding has a price
        return f"A risk: {_lowered(hints[0].headline)}"
    return _unpriced(bottleneck, vitals)


def _unpriced(bottleneck: str, vitals: Vitals) -> str:
    """Returns the verdict on a run without a finding that has a price: what its time goes to."""
    device = "GPU" if vitals.on_gpu else "CPU"
    share = _compute(vitals)
    if bottleneck == "compute" and (share >= HEALTHY_COMPUTE or not vitals.on_gpu):
        if share < HEALTHY_COMPUTE and _largest_else(vitals) >= NOTHING_ELSE:
            return _nothing_to_cure("the model itself")
        return (
            f"Compute-bound: {formatting.share(share)} of the time is {_computing(vitals)}. The {device} is busy: "
            "the model itself is the limit."
        )
    if bottleneck == "unknown":
        return f"{device} timings are missing, so the bottleneck is unknown."
    names = {
        "input": "waiting for data",
        "transfer": "copying to the device",
        "host": _between(vitals),
    }
    named = names.get(bottleneck, "the model itself")
    return _nothing_to_cure(named)


def _beside(bottleneck: str, findings: Sequence[Finding], vitals: Vitals) -> str:
    """Returns a sentence on a bottleneck that costs more than every finding and that no rule explains, or ""."""
    families = {cause.name: cause.family for cause in every_cause()}
    if any(families.get(finding.rule) == bottleneck for finding in findings):
        return ""
    if bottleneck == "input":
        name, share = "waiting for data", vitals.exposed_wait_share or 0.0
    elif bottleneck == "host" and not vitals.on_gpu:
        name, share = _between(vitals), vitals.outside_share
    else:
        return ""
    if share <= (findings[0].cost_share or 0.0):
        return ""
    return f" {name[0].upper()}{name[1:]} costs more ({formatting.share(share)}), but no rule found a fix for it."


def _between(vitals: Vitals) -> str:
    """Names what takes the time outside every phase: computing without a module, or Python."""
    in_torch = _unseen_forward(vitals) or _part_in_torch(vitals) >= MOSTLY
    return "what the loop computes outside any module" if in_torch else "Python between the phases"


def ended_the_run(finding: Finding, vitals: Vitals) -> bool:
    """True if a finding is about the error that ended the run, not about a future risk."""
    if finding.rule == "out-of-memory":
        return True
    has_error = vitals.outcome == "failed" and bool(vitals.reason)
    return has_error and bool(finding.risk) and any(vitals.reason in line for line in finding.evidence)


def _lowered(sentence: str) -> str:
    """Lowers a sentence's first letter for use after a colon; `GPU`, `PyTorch` and the like stay."""
    first, rest = sentence[:1], sentence.split(" ")[0][1:]
    return sentence if rest != rest.lower() else first.lower() + sentence[1:]


def _nothing_to_cure(named: str) -> str:
    """Returns the verdict on a run without a cure that would save 5 %; `named` is what most of the time goes to."""
    return f"Nothing found that would save 5 % or more: most of the time goes to {named}."


def _largest_else(vitals: Vitals) -> float:
    """Returns the largest share of the wall-clock that is not computing."""
    return max(vitals.data_wait_share or 0.0, vitals.transfer_share or 0.0, vitals.outside_share)


def too_little(vitals: Vitals) -> str:
    """Returns the verdict on a run with too few steps: why there is none yet."""
    if vitals.steps == 0:
        return (
            "No training step was seen: put the loop that pulls batches from a DataLoader or calls optimizer.step() "
            "into the cell."
        )
    measured = "1 step was" if vitals.measured_steps == 1 else f"{vitals.measured_steps} steps were"
    return f"Only {measured} measured, too few for a verdict: let the loop run for 5 or more."
