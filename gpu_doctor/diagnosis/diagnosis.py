"""The diagnosis: every rule asked, the dearest finding first, the silent ones named, and what each offers to turn.

What the knobs would refuse in the loop at hand is left to the hand, and said so. The diagnosis runs where there is no
torch, which the knobs need, so what they ask of a loop stands here as a table; `tests/unit/diagnosis/test_offered.py`
holds it against them.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, replace
from typing import Any, Final

from gpu_doctor import formatting
from gpu_doctor.cell import hushed
from gpu_doctor.diagnosis.rules import RULES, every_rule
from gpu_doctor.diagnosis.rules.plugins import plugins
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.silent_rules import HUSHED, failed
from gpu_doctor.diagnosis.silent_rules import Silence as Silence
from gpu_doctor.diagnosis.silent_rules import reason as silent_reason
from gpu_doctor.diagnosis.verdict import classified, ended_the_run, too_little
from gpu_doctor.diagnosis.verdict import verdict as verdict_on
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.measure import FEWEST_STEPS, measure
from gpu_doctor.display import Shown
from gpu_doctor.recording import Recording

SURE_STEPS: Final = 20
"""Below so many measured steps (`Vitals.passes`) a verdict is called early."""
BY_OPTIMIZER: Final = ("amp", "channels_last", "compile", "fused_optimizer")
"""Knobs that find the model by the optimizer that steps it: a loop that predicts, or updates by hand, has none."""
NO_OPTIMIZER: Final = "a trial needs an optimizer of torch that steps in the loop, and there is none"


@dataclass(frozen=True)
class Diagnosis(Shown):
    """What `diagnose` says of one recording."""

    bottleneck: str
    """input, transfer, host, compute, memory, communication, or unknown."""
    verdict: str
    """One sentence for a person, with the figure."""
    findings: tuple[Finding, ...]
    """Dearest first."""
    silent: tuple[Silence, ...]
    vitals: Vitals
    early: bool = False
    """Fewer than 20 measured steps, or calls of the closure where the optimizer has one."""
    notes: tuple[str, ...] = ()
    """What else is to be said, one sentence each, such as a rule to ignore that there is not."""

    def to_dict(self) -> dict[str, Any]:
        """The diagnosis as plain data (strings, finite numbers, lists, dicts, None), ready for JSON.

        JSON has no NaN, which stands in a recording for what was not measured: it becomes None.
        """
        plain: dict[str, Any] = _plain(dataclasses.asdict(self))
        return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return getattr(value, "value", value) if not isinstance(value, (str, int, float, bool, type(None))) else value


def diagnose(subject: Recording | Vitals) -> Diagnosis:
    """Asks every rule what it finds in a recording.

    Args:
        subject: a recording, or vitals measured already.

    Returns:
        The diagnosis; a pure function of its argument.

    Raises:
        TypeError: if it is neither.

    Example:
        >>> import gpu_doctor
        >>> recording = gpu_doctor.load("notebooks/recordings/images-on-a-cpu.npz")
        >>> diagnosis = gpu_doctor.diagnose(recording)
        >>> diagnosis.bottleneck, diagnosis.findings[0].rule
        ('input', 'loader-without-workers')
    """
    if not isinstance(subject, (Recording, Vitals)):
        raise TypeError(f"diagnose() takes a recording, such as gpu_doctor.load(path) gives, not {subject!r:.60}.")
    vitals = measure(subject) if isinstance(subject, Recording) else subject
    few = vitals.passes < FEWEST_STEPS or vitals.step_wall_s is None
    early = few or vitals.passes < SURE_STEPS
    rules, others = (*RULES, *plugins().rules), plugins().notes
    quiet, notes = hushed(vitals.source, [rule.name for rule in rules])
    notes = (*notes, *others)
    findings: list[Finding] = []
    silent: list[Silence] = []
    for rule in rules:
        reason = HUSHED if rule.name in quiet else silent_reason(rule, vitals)
        if few and reason != HUSHED and (reason or "outcome" not in rule.needs):
            continue  # of a run without steps nothing can be told but how it ended
        if reason:
            silent.append(Silence(rule.name, reason))
            continue
        try:
            finding = rule.finds(vitals)
        except Exception as error:  # one rule that fails must not take the others' findings away
            silent.append(Silence(rule.name, failed(error)))
            continue
        if finding is not None:
            findings.append(offered(dataclasses.replace(finding, early=early), vitals))
    findings = ended_first(one_cause(findings), vitals)
    if few:
        told = findings and (ended_the_run(findings[0], vitals) or vitals.outcome != "completed")
        verdict = findings[0].headline if told else too_little(vitals)
        return Diagnosis("unknown", verdict, tuple(findings), tuple(silent), vitals, True, notes)
    bottleneck = classified(vitals)
    if bottleneck == "compute" and findings and findings[0].rule == "launch-bound" and not vitals.on_gpu:
        bottleneck = "host"  # by the clock it computes; what it does most is get from one operation to the next
    return Diagnosis(
        bottleneck, verdict_on(bottleneck, findings, vitals), tuple(findings), tuple(silent), vitals, early, notes
    )


def judged(recording: Recording) -> tuple[Diagnosis | None, Recording]:
    """The diagnosis of a run that has just ended, and its recording; never raises.

    A diagnosis that fails is a note of the recording: it must not stand in the way of what the user's code returned or
    raised.
    """
    try:
        return diagnose(recording), recording
    except Exception as error:
        note = f"The diagnosis failed ({formatting.raised(error)}); the run is not affected."
        return None, dataclasses.replace(recording, notes=(*recording.notes, note))


def one_cause(findings: list[Finding]) -> list[Finding]:
    """Drops what a dearer or more telling finding explains already; dearest first, then risks, then hints."""
    excludes = {rule.name: rule.excludes for rule in every_rule()}
    absorbed = {name for finding in findings for name in excludes.get(finding.rule, ())}
    named = (one for one in findings if one.rule not in absorbed)
    return sorted(named, key=lambda one: (one.hint, bool(one.risk), -one.cost_share))


def ended_first(findings: list[Finding], vitals: Vitals) -> list[Finding]:
    """What ended the run stands before what made it slow: nothing else is to be cured before."""
    return sorted(findings, key=lambda one: not ended_the_run(one, vitals))


def offered(finding: Finding, vitals: Vitals) -> Finding:
    """The finding with each cure whose settings would be refused in this loop as one by hand."""
    if vitals.setup.optimizers:
        return finding
    return replace(finding, prescriptions=tuple(_by_hand(one) for one in finding.prescriptions))


def _by_hand(one: Prescription) -> Prescription:
    if not any(name in BY_OPTIMIZER for name in one.settings):
        return one
    return replace(one, safety=Safety.BY_HAND, settings={}, text=f"{one.text} (not by a trial: {NO_OPTIMIZER})")
