"""The forms of the diagnosis: what a rule is, what it finds, what it prescribes."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType

from gpu_doctor.diagnosis.forecast.prediction import Forecast
from gpu_doctor.diagnosis.forecast.removed_work import MOST, Gain, at_best
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.recording import SettingValue

NAMING_BAR = 0.05
"""A finding is named from this cost_share on (torch-tb-profiler's bar for its data-loading advice; TraceML 0.5 warns of
waits for data and of copies from 10 % on). Rules leave it to `Rule.finds`."""

RESIDUAL_SHARE = 0.10
"""What a loop's own code takes beside the training in each step is named from here on: TraceML 0.5 warns of a residual
from 10 % on."""

Expected = Forecast | Gain
"""What says how much faster a loop will be, and between which ends."""


ESTIMATED_MOST = 0.95
"""No estimate of a part takes more than this away."""


def faster(share: float, most: float = MOST) -> float:
    """How many times as fast a loop is if a share of its wall-clock goes, `most` of it at most."""
    return 1.0 / (1.0 - min(share, most))


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
    at_most: bool = False
    """The prediction is a bound: it comes true if all of the work goes that the finding prices, and is said so."""
    changes: str = ""
    """What changes in the training, one sentence (empty for SAFE, of which the knob says it)."""

    def expecting(self, seen: Expected | None, at_most: bool = False) -> Prescription:
        """It with what is expected of it, if that is known; `at_most`: as a bound."""
        if seen is None:
            return self
        return replace(
            self, predicted_speedup=seen.speedup, predicted_low=seen.low, predicted_high=seen.high, at_most=at_most
        )

    def saving(self, low: float, usual: float, high: float, at_most: bool = False) -> Prescription:
        """It with what it gives if an estimated share of the wall-clock goes: at least, usually, and at most, 0..1."""
        least, middle, best = (faster(share, ESTIMATED_MOST) for share in (low, usual, high))
        return self.expecting(Gain(middle, least, best), at_most)

    def saving_at_most(self, share: float) -> Prescription:
        """It with what it gives if a share of the wall-clock goes, 0..1: all of it at best, nothing at worst."""
        return self.expecting(Gain(faster(share), 1.0, at_best(share)), at_most=True)


@dataclass(frozen=True)
class Finding:
    """What a rule found in one recording."""

    rule: str
    headline: str
    """One sentence with the figure, such as 'The GPU waits for data 71 % of the time.'"""
    cost_share: float
    """The one coin: the part of the run's wall-clock after warm-up that it accounts for, 0..1. Costs overlap."""
    evidence: tuple[str, ...] = ()
    """Figures with units that led here, and lines of the user's code where line costs know them."""
    prescriptions: tuple[Prescription, ...] = ()
    """Best first."""
    risk: str = ""
    """What will or may happen, one sentence, where it costs nothing yet (memory that will not suffice): such a finding
    is named whatever its price, after the priced ones."""
    early: bool = False
    """Judged on fewer than 20 measured steps."""
    hint: bool = False
    """Nothing that was measured prices it: `cost_share` is 0, and it is named as worth a trial, after all others."""


@dataclass(frozen=True)
class Rule:
    """One file of the shelf `rules/`: its name, family, page, the vitals it needs, its check."""

    name: str
    family: str
    needs: tuple[str, ...]
    """Names of `Vitals` fields; if one is None the rule is silent and the report says which."""
    check: Callable[[Vitals], Finding | None]
    """What it finds in vitals that have what it needs, whatever that costs."""
    page: str
    """Markdown: What it means / Why it costs you / What to try / When to leave it."""
    cpu_needs: tuple[str, ...] | None = None
    """What it needs instead where the loop trains on a CPU; None = the same."""
    excludes: tuple[str, ...] = ()
    """Rules that explain the same symptom: when this one finds something, those are dropped from the list."""

    def finds(self, vitals: Vitals) -> Finding | None:
        """What `check` finds, if it is to be named: dear enough, a risk, or worth a trial."""
        found = self.check(vitals)
        named = found is not None and (found.cost_share >= NAMING_BAR or bool(found.risk) or found.hint)
        return found if named else None

    def needed(self, vitals: Vitals) -> tuple[str, ...]:
        """What it needs of these vitals."""
        return self.needs if vitals.on_gpu or self.cpu_needs is None else self.cpu_needs

    @property
    def summary(self) -> str:
        """First line of the page."""
        return self.page.strip().splitlines()[0]


def rule_of(module: ModuleType) -> Rule:
    """The rule that a rule file defines: its docstring is the page, `NEEDS` and `check` the rest.

    The file's name gives the rule's name (`slow_getitem.py` -> `slow-getitem`), its folder the family.
    """
    parts = module.__name__.split(".")
    return Rule(
        name=parts[-1].replace("_", "-"),
        family=parts[-2],
        needs=tuple(module.NEEDS),
        check=module.check,
        cpu_needs=tuple(module.CPU_NEEDS) if hasattr(module, "CPU_NEEDS") else None,
        page=inspect.cleandoc(module.__doc__ or ""),
        excludes=tuple(getattr(module, "EXCLUDES", ())),
    )
