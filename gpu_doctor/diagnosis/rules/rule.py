"""The forms of the diagnosis: what a rule is, what it finds, what it prescribes."""

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
"""A finding is named from this cost_share on (torch-tb-profiler's bar for its data-loading advice; TraceML 0.5 warns of
waits for data and of copies from 10 % on). Rules leave it to `Rule.finds`."""

RESIDUAL_SHARE = 0.10
"""What a loop's own code takes beside the training in each step is named from here on: TraceML 0.5 warns of a residual
from 10 % on."""


class Safety(enum.Enum):
    """What a prescription does to the training."""

    SAFE = "safe"
    """The same training, sooner; the knob says where last digits or random numbers are others."""
    CHANGES_TRAINING = "changes-training"
    """Batch size, precision: the card says what changes."""
    BY_HAND = "by-hand"
    """Text and a code line; no knob can do it."""


@dataclass(frozen=True)
class Prescription:
    """One thing to try."""

    text: str
    """What to do, one imperative sentence."""
    safety: Safety
    settings: Mapping[str, SettingValue] = field(default_factory=dict)
    """Knob values that try it; empty where it is done by hand."""
    code: str = ""
    """The line(s) to paste."""
    predicted_speedup: float | None = None
    """Samples/s with over without, from the forecast; None = cannot be known from this recording: measure it."""
    predicted_low: float | None = None
    predicted_high: float | None = None
    changes: str = ""
    """What changes in the training, one sentence (empty for SAFE, of which the knob says it)."""

    def expecting(self, seen: Forecast | None) -> Prescription:
        """It with what is forecast of it, if that is known."""
        if seen is None:
            return self
        return replace(self, predicted_speedup=seen.speedup, predicted_low=seen.low, predicted_high=seen.high)


Kind = Literal["lost", "at-most", "hint"]
"""How a finding's price is known.

lost: measured in this run, it would be gone (a wait, a call, a repeated item). at-most: a measured phase that the cure
could shorten, a bound. hint: nothing that was measured prices it; it is worth a trial, or a risk.
"""


@dataclass(frozen=True)
class Finding:
    """What a rule found in one recording."""

    rule: str
    """Name of the cause, such as 'slow-getitem': `gpu_doctor.explain` has its page."""
    headline: str
    """One sentence with the figure, such as 'The GPU waits for data 71 % of the time.'"""
    cost_share: float | None
    """Part of the run's wall-clock after warm-up that it accounts for, 0..1; costs overlap and are never added. None
    for a hint, and for what ended the run."""
    evidence: tuple[str, ...] = ()
    """Figures with units that led here, and lines of the user's code where line costs know them."""
    prescriptions: tuple[Prescription, ...] = ()
    """Best first."""
    risk: str = ""
    """What will or may happen, one sentence, where it costs nothing yet (memory that will not suffice)."""
    early: bool = False
    """Judged on fewer than 20 measured steps."""
    kind: Kind = "lost"
    first: bool = False
    """Said before everything else, whatever its price: nothing else is worth a cure before (a GPU that is not used)."""

    @property
    def named(self) -> bool:
        """Whether it is dear enough to be named; a hint and what is said first always are."""
        return self.kind == "hint" or self.first or (self.cost_share or 0.0) >= NAMING_BAR


@dataclass(frozen=True)
class Cause:
    """One cause of a state: users know its name, and `gpu_doctor.explain` shows its page."""

    name: str
    page: str
    """Its sections: What it means / Why it costs you / What to try / In code / When to leave it."""
    needs: tuple[str, ...] = ()
    """Names of `Vitals` fields; if one is None the cause is silent and the report says which."""
    cpu_needs: tuple[str, ...] | None = None
    """What it needs instead where the loop trains on a CPU; None = the same."""
    family: str = ""
    """Folder of its rule: the bottleneck class that it belongs to."""

    def needed(self, vitals: Vitals) -> tuple[str, ...]:
        """What it needs of these vitals."""
        return self.needs if vitals.on_gpu or self.cpu_needs is None else self.cpu_needs

    def lacks(self, vitals: Vitals) -> bool:
        """Whether one of the vitals that it needs was not measured."""
        return any(getattr(vitals, name) is None for name in self.needed(vitals))

    @property
    def summary(self) -> str:
        """First line of the page."""
        return self.page.strip().splitlines()[0]


Found = Finding | Sequence[Finding] | None
"""What a check returns; several findings only of disjoint seconds."""


@dataclass(frozen=True)
class Rule:
    """One module of the shelf `rules/`: it decides one state once, and names the cause."""

    name: str
    family: str
    causes: tuple[Cause, ...]
    check: Callable[[Vitals], Found]
    """What it finds in vitals, whatever that costs; it finds no cause whose vitals were not measured."""

    def asked(self, vitals: Vitals) -> tuple[Finding, ...]:
        """What `check` finds, whatever it costs, of the causes that have what they need."""
        able = {cause.name for cause in self.causes if not cause.lacks(vitals)}
        found = self.check(vitals) if able else None
        findings = () if found is None else (found,) if isinstance(found, Finding) else tuple(found)
        return tuple(one for one in findings if one.rule in able)

    def finds(self, vitals: Vitals) -> tuple[Finding, ...]:
        """What `check` finds that is to be named: dear enough, said first, or a hint."""
        return tuple(one for one in self.asked(vitals) if one.named)


def rule_of(module: ModuleType) -> Rule:
    """The rule that a module defines: `check`, and its `CAUSES`, each with a page.

    A module without `CAUSES` has one cause of its own name: the docstring is the page, `NEEDS` and `CPU_NEEDS` say
    what it needs. The file's name gives the names (`slow_getitem.py` -> `slow-getitem`), its folder the family.
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
        causes=tuple(replace(one, family=family, page=inspect.cleandoc(one.page)) for one in causes),
        check=module.check,
    )
