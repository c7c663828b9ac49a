"""The types of a diagnosis: Rule, Cause, Finding and Prescription."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Literal

from gpu_doctor.diagnosis.forecast.prediction import Forecast
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.recording import SettingValue

NAMING_BAR = 0.05
"""Smallest cost_share of a finding that is shown; `Rule.finds` applies it. It is torch-tb-profiler's bar for advice on
data loading; TraceML 0.5 warns of waits for data and of copies from 10 % on."""

RESIDUAL_SHARE = 0.10
"""Smallest share of the loop's own code, outside training, that is shown: TraceML 0.5 warns of a residual from 10 %."""


class Safety(enum.Enum):
    """Effect of a prescription on the training."""

    SAFE = "safe"
    """The training stays the same, only faster; the knob says if last digits or random numbers differ."""
    CHANGES_TRAINING = "changes-training"
    """The training changes (batch size, precision); `Prescription.changes` says how."""
    BY_HAND = "by-hand"
    """No knob can do it: the user edits the code."""


@dataclass(frozen=True)
class Prescription:
    """One thing to try."""

    text: str
    """The advice, one imperative sentence."""
    safety: Safety
    settings: Mapping[str, SettingValue] = field(default_factory=dict)
    """Knob values for a trial of it; empty if it is done by hand."""
    code: str = ""
    """The line(s) to paste."""
    predicted_speedup: float | None = None
    """Forecast of samples/s with the change over samples/s without; None if this recording cannot tell."""
    predicted_low: float | None = None
    predicted_high: float | None = None
    changes: str = ""
    """One sentence on what changes in the training; empty for SAFE, where the knob says it."""

    def expecting(self, forecast: Forecast | None) -> Prescription:
        """Returns a copy that carries the forecast; the prescription itself if there is no forecast."""
        if forecast is None:
            return self
        return replace(
            self, predicted_speedup=forecast.speedup, predicted_low=forecast.low, predicted_high=forecast.high
        )


Kind = Literal["lost", "at-most", "hint"]
"""How a finding's price is known.

lost: measured in this run, it would be gone (a wait, a call, a repeated item). at-most: a measured phase that the cure
could shorten, a bound. hint: nothing that was measured prices it; it is worth a trial, or a risk.
"""


@dataclass(frozen=True)
class Finding:
    """A problem that a rule found in one recording, with its price and its prescriptions."""

    rule: str
    """Name of the cause, such as 'slow-getitem': `gpu_doctor.explain` has its page."""
    headline: str
    """One sentence with the figure, such as 'The GPU waits for data 71 % of the time.'"""
    cost_share: float | None
    """Part of the wall-clock after warm-up that the problem takes, 0..1. Costs overlap and are never added. None for a
    hint, and for the error that ended the run."""
    evidence: tuple[str, ...] = ()
    """Figures with units that support the finding, and lines of the user's code if they are known."""
    prescriptions: tuple[Prescription, ...] = ()
    """Best first."""
    risk: str = ""
    """One sentence on a problem that costs nothing yet but may come (memory that will run out)."""
    early: bool = False
    """True if fewer than 20 steps were measured."""
    kind: Kind = "lost"
    first: bool = False
    """True if it goes before all other findings at any price, such as a GPU that is not used."""

    @property
    def named(self) -> bool:
        """True if it costs enough to be shown; hints and findings with `first` always are."""
        return self.kind == "hint" or self.first or (self.cost_share or 0.0) >= NAMING_BAR


@dataclass(frozen=True)
class Cause:
    """One cause of a state: users know its name, and `gpu_doctor.explain` shows its page."""

    name: str
    page: str
    """Text with the sections What it means / Why it costs you / What to try / In code / When to leave it."""
    needs: tuple[str, ...] = ()
    """Names of `Vitals` fields. If one is None, the cause is not judged and the report says which field is missing."""
    cpu_needs: tuple[str, ...] | None = None
    """Fields needed instead when the loop trains on a CPU; None if they are the same."""
    family: str = ""
    """Folder of its rule, which is also its bottleneck class."""

    def needed(self, vitals: Vitals) -> tuple[str, ...]:
        """Names of the vitals that this cause needs on the device of this run."""
        return self.needs if vitals.on_gpu or self.cpu_needs is None else self.cpu_needs

    def lacks(self, vitals: Vitals) -> bool:
        """True if a vital that this cause needs was not measured."""
        return any(getattr(vitals, name) is None for name in self.needed(vitals))

    @property
    def summary(self) -> str:
        """First line of the page."""
        return self.page.strip().splitlines()[0]


Found = Finding | Sequence[Finding] | None
"""Return type of a check. Several findings must cover disjoint seconds."""


@dataclass(frozen=True)
class Rule:
    """A module of `rules/`: it decides whether a loop is in one state, and names the cause."""

    name: str
    family: str
    causes: tuple[Cause, ...]
    check: Callable[[Vitals], Found]
    """Returns findings at any cost; it must not report a cause whose vitals were not measured."""

    def all_findings(self, vitals: Vitals) -> tuple[Finding, ...]:
        """Runs `check` and returns its findings at any cost, for causes whose vitals were measured."""
        able = {cause.name for cause in self.causes if not cause.lacks(vitals)}
        found = self.check(vitals) if able else None
        findings = () if found is None else (found,) if isinstance(found, Finding) else tuple(found)
        return tuple(finding for finding in findings if finding.rule in able)

    def finds(self, vitals: Vitals) -> tuple[Finding, ...]:
        """Runs `check` and returns the findings to show (see `Finding.named`)."""
        return tuple(finding for finding in self.all_findings(vitals) if finding.named)


def rule_of(module: ModuleType) -> Rule:
    """Builds the rule that a module defines by its `check` and its `CAUSES`.

    A module without `CAUSES` has one cause, named like the file (`slow_getitem.py` -> `slow-getitem`): the module's
    docstring is its page, `NEEDS` and `CPU_NEEDS` are the vitals it needs. The folder is the family.
    """
    parts = module.__name__.split(".")
    name, family = parts[-1].replace("_", "-"), parts[-2]
    causes: tuple[Cause, ...] = getattr(module, "CAUSES", ()) or (
        Cause(
            name,
            inspect.cleandoc(module.__doc__ or ""),
            tuple(module.NEEDS),
            tuple(module.CPU_NEEDS) if hasattr(module, "CPU_NEEDS") else None,
        ),
    )
    return Rule(
        name=name,
        family=family,
        causes=tuple(replace(cause, family=family, page=inspect.cleandoc(cause.page)) for cause in causes),
        check=module.check,
    )
