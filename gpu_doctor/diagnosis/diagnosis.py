"""The diagnosis of a run: runs every rule, ranks the findings, and lists the causes that could not be judged.

A cure whose knob would refuse this loop is marked as one to do by hand. The diagnosis must run without torch, which the
knobs need, so the knobs' requirements are repeated here; `tests/unit/diagnosis/test_offered.py` compares the two.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.cell import ignored_rules
from gpu_doctor.diagnosis import as_html, as_text
from gpu_doctor.diagnosis.as_data import DiagnosisData
from gpu_doctor.diagnosis.rules import RULES
from gpu_doctor.diagnosis.rules.evidence import around_the_loop
from gpu_doctor.diagnosis.rules.plugins import plugins
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Rule, Safety
from gpu_doctor.diagnosis.silent_rules import IGNORED, failed
from gpu_doctor.diagnosis.silent_rules import Silence as Silence
from gpu_doctor.diagnosis.silent_rules import reason as silent_reason
from gpu_doctor.diagnosis.verdict import classified, ended_the_run, too_little
from gpu_doctor.diagnosis.verdict import verdict as verdict_on
from gpu_doctor.diagnosis.vitals.fetching import with_other_runs
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.machine import busy_machine
from gpu_doctor.diagnosis.vitals.measure import FEWEST_STEPS, measure
from gpu_doctor.recording import Recording

SURE_STEPS: Final = 20
"""A verdict on fewer measured steps (`Vitals.passes`) is marked as early."""
LARGE_SHARE: Final = 0.10
"""Smallest lost share of the wall-clock that ranks before bounds (TraceML 0.5 warns of waits from 10 %)."""
BY_OPTIMIZER: Final = ("amp", "channels_last", "compile", "fused_optimizer")
"""Knobs that find the model through its optimizer, so they need a torch optimizer that steps in the loop."""
NO_OPTIMIZER: Final = "a trial needs an optimizer of torch that steps in the loop, and there is none"


@dataclass(frozen=True)
class Diagnosis(DiagnosisData):
    """The diagnosis of one recording, readable when printed or shown as a cell's last expression."""

    def __str__(self) -> str:
        return as_text.text(self)

    def _repr_html_(self) -> str:
        return as_html.html(self)

    _repr_pretty_ = formatting.pretty


def diagnose(subject: Recording | Vitals, others: Sequence[Recording] = ()) -> Diagnosis:
    """Diagnoses a recording with every rule.

    Args:
        subject: a recording, or vitals that were measured from one.
        others: other runs of the same loop, such as with another number of workers, for what one run cannot show.

    Returns:
        The diagnosis; a pure function of its arguments.

    Raises:
        TypeError: if `subject` is neither.

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
    if others:
        vitals = with_other_runs(
            vitals, [measure(run) for run in others if run.setup.hardware == vitals.setup.hardware]
        )
    few = vitals.passes < FEWEST_STEPS or vitals.step_wall_s is None
    early = few or vitals.passes < SURE_STEPS
    rules = (*RULES, *plugins().rules)
    ignored, notes = ignored_rules(vitals.source, [name for rule in rules for name in _names(rule)])
    found: list[Finding] = []
    silent: list[Silence] = []
    for rule in rules:
        named, not_judged = _judged_by(rule, vitals, ignored, few)
        found += (offered(dataclasses.replace(finding, early=early), vitals) for finding in named)
        silent += not_judged
    findings, hints = ranked(found, vitals)
    bottleneck = "unknown" if few else classified(vitals)
    if bottleneck == "compute" and findings and findings[0].rule == "launch-bound" and not vitals.on_gpu:
        bottleneck = "host"  # the clock says compute, but most of that time goes from one operation to the next
    ended = vitals.outcome != "completed" or any(ended_the_run(finding, vitals) for finding in findings[:1])
    explained = few and ended and bool(findings or hints)
    verdict = too_little(vitals) if few and not explained else verdict_on(bottleneck, findings, hints, vitals)
    busy = busy_machine(vitals.others_share)
    notes = (*notes, *around_the_loop(vitals), *((f"{busy[0].upper()}{busy[1:]}.",) if busy else ()))
    return Diagnosis(
        bottleneck, verdict, findings, tuple(silent), vitals, early=early, hints=hints, notes=(*notes, *plugins().notes)
    )


def _judged_by(rule: Rule, vitals: Vitals, ignored: Collection[str], few: bool) -> tuple[list[Finding], list[Silence]]:
    """Runs a rule; returns its findings, and its causes that could not be judged.

    Args:
        rule: the rule to run.
        vitals: vitals of the run.
        ignored: names of rules and causes that a comment in the cell switches off.
        few: True if the run has too few steps for a verdict: only causes that ended it are judged.
    """
    off = {cause.name for cause in rule.causes if cause.name in ignored or rule.name in ignored}
    lacking = {cause.name: silent_reason(cause, vitals) for cause in rule.causes if cause.name not in off}
    ends = {cause.name for cause in rule.causes if "outcome" in cause.needs}
    silent = [Silence(name, IGNORED) for name in off]
    silent += [Silence(name, why) for name, why in lacking.items() if why and not few]
    if (few and not ends) or off >= {cause.name for cause in rule.causes}:
        return [], silent
    try:
        found = rule.finds(vitals)
    except (Exception, SystemExit) as error:  # one rule that fails must not take the others' findings away
        return [], [*silent, *(Silence(name, failed(error)) for name, why in lacking.items() if not why)]
    return [each for each in found if each.rule not in off and (not few or each.rule in ends)], silent


def _names(rule: Rule) -> tuple[str, ...]:
    """Names by which a cell can switch a rule off: its own, and those of its causes."""
    return tuple(dict.fromkeys((rule.name, *(cause.name for cause in rule.causes))))


def judged(recording: Recording, others: Sequence[Recording] = ()) -> tuple[Diagnosis | None, Recording]:
    """Diagnoses a run that has just ended; never raises. Returns the diagnosis and the recording.

    If the diagnosis fails, the recording gets a note: what the user's code returned or raised must still reach the
    user.
    """
    try:
        return diagnose(recording, others), recording
    except Exception as error:
        note = f"The diagnosis failed ({formatting.raised(error)}); the run is not affected."
        return None, dataclasses.replace(recording, notes=(*recording.notes, note))


def ranked(found: Iterable[Finding], vitals: Vitals) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Sorts findings and hints into the order in which they are shown.

    Args:
        found: findings of all rules.
        vitals: vitals of the run.

    Returns:
        The findings: the error that ended the run, those with `first`, losses of 10 % or more by share, bounds by
        share, smaller losses. The hints: risks, then the rest.
    """
    found = list(found)
    leads = [each for each in found if each.first or ended_the_run(each, vitals)]
    rest = [each for each in found if each not in leads]
    findings = sorted((each for each in rest if each.kind != "hint"), key=_rank)
    hints = sorted((each for each in rest if each.kind == "hint"), key=lambda hint: not hint.risk)
    return (*sorted(leads, key=lambda each: not ended_the_run(each, vitals)), *findings), tuple(hints)


def _rank(finding: Finding) -> tuple[int, float]:
    """Sort key of a finding: large losses, then bounds, then small losses; each by share, the largest first."""
    share = finding.cost_share or 0.0
    place = 1 if finding.kind == "at-most" else 0 if share >= LARGE_SHARE else 2
    return place, -share


def offered(finding: Finding, vitals: Vitals) -> Finding:
    """Returns the finding, with cures that a trial of this loop would refuse marked as to be done by hand."""
    if vitals.setup.optimizers:
        return finding
    return replace(finding, prescriptions=tuple(_by_hand(cure) for cure in finding.prescriptions))


def _by_hand(cure: Prescription) -> Prescription:
    """Returns a prescription, made one by hand if its knob needs an optimizer and the loop has none."""
    if not any(name in BY_OPTIMIZER for name in cure.settings):
        return cure
    return replace(cure, safety=Safety.BY_HAND, settings={}, text=f"{cure.text} (not by a trial: {NO_OPTIMIZER})")
