"""The bottleneck class, every rule asked, dearest finding first, the silent ones named."""

from __future__ import annotations

import dataclasses
import difflib
import re
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from gpu_doctor.recording import Recording
from gpu_doctor.rules import RULES
from gpu_doctor.rules.distributed.communication_bound import exchanging_share
from gpu_doctor.rules.host.slow_generator import making_share
from gpu_doctor.rules.rule import NAMING_BAR, Finding, Rule
from gpu_doctor.unjudged import HUSHED, failed
from gpu_doctor.unjudged import Silence as Silence
from gpu_doctor.unjudged import reason as silent_reason
from gpu_doctor.vitals import FEWEST_STEPS, Vitals, measure

SURE_STEPS: Final = 20
"""Below so many measured steps a verdict is called early."""
HEALTHY_COMPUTE: Final = 0.90
NOTHING_ELSE: Final = 0.10
"""Compute >= 90 % and nothing else >= 10 % of the wall-clock is compute-bound and healthy (TraceML 0.5)."""
BOUND_SHARE: Final = 0.20
"""From 20 % of the wall-clock on, waiting for data, copies or Python names the class (TraceML 0.5's upper bar)."""
_IGNORE: Final = re.compile(r"#\s*gpudoctor:\s*ignore\s+([\w\-, ]+)")


@dataclass(frozen=True)
class Diagnosis:
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
    """Fewer than 20 measured steps."""

    def __str__(self) -> str:
        from gpu_doctor import report  # the words stand two floors up; only who prints a diagnosis needs them

        return report.text(self)

    def _repr_html_(self) -> str:
        from gpu_doctor import report

        return report.html(self)

    def to_dict(self) -> dict[str, Any]:
        """The diagnosis as plain data (strings, numbers, lists, dicts, None), ready for JSON."""
        plain: dict[str, Any] = _plain(dataclasses.asdict(self))
        return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return getattr(value, "value", value) if not isinstance(value, (str, int, float, bool, type(None))) else value


def diagnose(subject: Recording | Vitals) -> Diagnosis:
    """Asks every rule what it finds in a recording.

    Args:
        subject: a recording, or vitals measured already.

    Returns:
        The diagnosis; a pure function of its argument.

    Raises:
        TypeError: if it is neither.
    """
    if not isinstance(subject, (Recording, Vitals)):
        raise TypeError(f"diagnose() takes a recording, such as gpu_doctor.load(path) gives, not {subject!r:.60}.")
    vitals = measure(subject) if isinstance(subject, Recording) else subject
    few = vitals.measured_steps < FEWEST_STEPS or vitals.step_wall_s is None
    early = few or vitals.measured_steps < SURE_STEPS
    hushed = {name.strip() for found in _IGNORE.findall(vitals.source) for name in found.split(",")}
    findings: list[Finding] = []
    silent: list[Silence] = []
    for rule in RULES:
        if few and "outcome" not in rule.needs:  # how a run ended can be told of a run without steps
            continue
        reason = HUSHED if rule.name in hushed else silent_reason(rule, vitals)
        if reason:
            silent.append(Silence(rule.name, reason))
            continue
        try:
            finding = rule.check(vitals)
        except Exception as error:  # one rule that fails must not take the others' findings away
            silent.append(Silence(rule.name, failed(error)))
            continue
        if finding is not None and (finding.cost_share >= NAMING_BAR or finding.risk):
            findings.append(dataclasses.replace(finding, early=early))
    findings = _one_cause(findings)
    if few:
        verdict = findings[0].headline if findings else _too_little(vitals)
        return Diagnosis("unknown", verdict, tuple(findings), tuple(silent), vitals, early=True)
    bottleneck = classified(vitals)
    return Diagnosis(bottleneck, _verdict(bottleneck, findings, vitals), tuple(findings), tuple(silent), vitals, early)


def judged(recording: Recording) -> tuple[Diagnosis | None, Recording]:
    """The diagnosis of a run that has just ended, and its recording; never raises.

    A diagnosis that fails is a note of the recording: it must not stand in the way of what the user's code returned or
    raised.
    """
    try:
        return diagnose(recording), recording
    except Exception as error:
        note = f"The diagnosis failed ({type(error).__name__}: {error}); the run is not touched by it."
        return None, dataclasses.replace(recording, notes=(*recording.notes, note))


def _one_cause(findings: list[Finding]) -> list[Finding]:
    """Drops what a dearer or more telling finding explains already; dearest first."""
    excludes = {rule.name: rule.excludes for rule in RULES}
    absorbed = {name for finding in findings for name in excludes.get(finding.rule, ())}
    named = (one for one in findings if one.rule not in absorbed)
    return sorted(named, key=lambda one: (bool(one.risk), -one.cost_share))


def classified(vitals: Vitals) -> str:
    """The bottleneck class: on a GPU the exposed shares decide, on a CPU device the host's.

    Forward, backward, optimizer, the loss between them and evaluation are compute. On a GPU the rest of the gap, after
    exposed wait and transfer, is the host's: it could not launch in time. A loop in which one of the others takes a
    fifth is bound by that one, though compute takes more: compute is what the time is meant for. Where no loader is
    used, the lines that make batches are input, as they would be in one. What ranks exchange while nothing is computed
    is communication, taken out of the compute (or of the host's Python) in which it was clocked.
    """
    wait, transfer = vitals.exposed_wait_share, vitals.exposed_transfer_share
    if vitals.on_gpu:
        if wait is None or vitals.gpu_gap_share is None:
            return "unknown"
        transfer = transfer or 0.0
        parts = {
            "input": wait,
            "transfer": transfer,
            "host": max(vitals.gpu_gap_share - wait - transfer, 0.0),
            "compute": vitals.gpu_busy_share or 0.0,
        }
        if (vitals.queue_empty_share or 0.0) >= 0.8 and (vitals.gpu_util_pct or 100.0) < 50:
            parts["host"], parts["compute"] = parts["host"] + parts["compute"], 0.0
    else:
        parts = {
            "input": vitals.data_wait_share or 0.0,
            "transfer": vitals.transfer_share or 0.0,
            "host": max((vitals.other_share or 0.0) - (vitals.loss_share or 0.0), 0.0),
            "compute": _compute(vitals),
        }
    making = min(making_share(vitals), parts["host"])
    parts["input"], parts["host"] = parts["input"] + making, parts["host"] - making
    parts["communication"] = min(exchanging_share(vitals), parts["compute"] + parts["host"])
    left = max(parts["communication"] - parts["compute"], 0.0)
    parts["compute"], parts["host"] = max(parts["compute"] - parts["communication"], 0.0), parts["host"] - left
    largest = max(("input", "transfer", "host", "communication"), key=lambda name: parts[name])
    return largest if parts[largest] >= min(BOUND_SHARE, parts["compute"]) else "compute"


def _compute(vitals: Vitals) -> float:
    names = ("forward_share", "backward_share", "optimizer_share", "evaluation_share", "loss_share")
    return float(sum(getattr(vitals, name) or 0.0 for name in names))


def _verdict(bottleneck: str, findings: list[Finding], vitals: Vitals) -> str:
    ended = next((one for one in findings if ended_the_run(one, vitals)), None)
    if ended is not None:  # nothing else matters as much
        return ended.headline
    if findings:  # a risk stands first only where nothing costs anything
        return f"A risk: {_lowered(findings[0].headline)}" if findings[0].risk else findings[0].headline
    device = "GPU" if vitals.on_gpu else "CPU"
    share = _compute(vitals)
    if bottleneck == "compute" and (share >= HEALTHY_COMPUTE or not vitals.on_gpu):
        if share < HEALTHY_COMPUTE and _largest_else(vitals) >= NOTHING_ELSE:
            return _nothing_to_cure("the model itself")
        return (
            f"Compute-bound: {share:.0%} of the time is forward, backward and optimizer. The {device} is kept busy; "
            "the ceiling is the model itself."
        ).replace("%", " %")
    if bottleneck == "unknown":
        return f"The {device}'s own clock was not read, so the bottleneck cannot be told apart."
    what = {
        "input": "waiting for data" if vitals.loader is not None else "making batches",
        "transfer": "copying to the device",
        "host": "Python between the phases",
        "communication": "the exchange of data between ranks",
    }
    named = what.get(bottleneck, "the model itself")
    return _nothing_to_cure(named)


def ended_the_run(finding: Finding, vitals: Vitals) -> bool:
    """Whether a finding is what the run ended with, rather than what may come."""
    if vitals.outcome == "out-of-memory" or finding.rule == "out-of-memory":
        return finding.rule == "out-of-memory"
    said = vitals.outcome == "failed" and bool(vitals.reason)
    return said and bool(finding.risk) and any(vitals.reason in one for one in finding.evidence)


def _lowered(sentence: str) -> str:
    """A sentence that goes on after a colon; `GPU` and the like stay."""
    return sentence[:1].lower() + sentence[1:] if sentence[1:2].islower() else sentence


def _nothing_to_cure(named: str) -> str:
    return f"No cure that gains 5 % or more could be told from this recording: most of the time goes to {named}."


def _largest_else(vitals: Vitals) -> float:
    """The largest share that is no computing."""
    other = (vitals.other_share or 0.0) - (vitals.loss_share or 0.0)
    return max(vitals.data_wait_share or 0.0, vitals.transfer_share or 0.0, other)


def _too_little(vitals: Vitals) -> str:
    if vitals.steps == 0:
        return (
            "No training step was seen: put the loop that pulls batches from a DataLoader or calls optimizer.step() "
            "into the cell."
        )
    seen = "1 step was" if vitals.measured_steps == 1 else f"{vitals.measured_steps} steps were"
    return f"Only {seen} measured, too few for a verdict: let the loop run for 5 or more."


class Steady:
    """Keeps a live verdict from flickering: the top finding stays until another one leads clearly or for a while."""

    LEADS: Final = 3
    """Diagnoses in a row after which a new leader is shown."""
    AHEAD: Final = 0.10
    """Or at once, if it costs so much more than the one that is shown."""

    def __init__(self) -> None:
        self._rule: str | None = None
        self._challenger: str | None = None
        self._count = 0

    def shown(self, diagnosis: Diagnosis, now_s: float = 0.0) -> Diagnosis:
        """The diagnosis to show: this one, with its findings in the order that the reader has got used to."""
        top = diagnosis.findings[0].rule if diagnosis.findings else None
        held = next((one for one in diagnosis.findings if one.rule == self._rule), None)
        if held is None or top == self._rule or held.risk:  # what costs something stands before a risk
            self._rule, self._challenger, self._count = top, None, 0
            return diagnosis
        self._count = self._count + 1 if top == self._challenger else 1
        self._challenger = top
        if self._count >= self.LEADS or diagnosis.findings[0].cost_share - held.cost_share >= self.AHEAD:
            self._rule, self._challenger, self._count = top, None, 0
            return diagnosis
        rest = tuple(one for one in diagnosis.findings if one is not held)
        return dataclasses.replace(diagnosis, findings=(held, *rest), verdict=held.headline)


class Page:
    """The page of one rule, as text and as HTML."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    def __str__(self) -> str:
        return f"{self.rule.name} ({self.rule.family})\n\n{self.rule.page}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f'<div style="max-width:48em;white-space:pre-wrap">{escape(str(self))}</div>'


def explain(rule: str) -> Page:
    """The page of a rule: What it means / Why it costs you / What to try / When to leave it.

    Raises:
        ValueError: if there is no such rule; the message names the nearest ones.
        TypeError: if it is no name.
    """
    if not isinstance(rule, str):
        raise TypeError(f"explain() takes the name of a rule, such as 'slow-getitem', not {rule!r:.60}.")
    names = {one.name: one for one in RULES}
    wanted = rule.strip().lower().replace("_", "-")
    if wanted in names:
        return Page(names[wanted])
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.4)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"The rules are: {', '.join(names)}."
    raise ValueError(f"There is no rule named {rule!r}. {hint}")
