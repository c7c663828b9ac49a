"""Defines a knob: a setting of the training loop that is changed for one run and restored afterwards."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

from gpu_doctor.cell import Edits
from gpu_doctor.diagnosis import Safety
from gpu_doctor.recording import Settings, SettingValue, Setup
from gpu_doctor.trials.knobs.draft import Draft

NO_MODEL: Final = "No torch optimizer stepped, so the trained model is not known."
"""Refusal of the knobs that act on the model."""


class Refused(Exception):
    """Raised if a value cannot be used; the message is the reason, in one sentence that says what to do instead."""


@dataclass(frozen=True)
class Choice:
    """A value that a knob offers; if it cannot be used, `refusal` says why in one sentence."""

    value: SettingValue
    label: str
    refusal: str = ""


@dataclass
class TrialScope:
    """The context in which a knob is turned: the code's namespace, and the setup that the baseline run found."""

    namespace: dict[str, Any]
    setup: Setup = field(default_factory=Setup)
    reasons: Mapping[str, str] | None = None
    """Setting that the running text does not have -> the reason; None if it has none of the settings."""
    in_trial: bool = False
    """True if the run is a side of a trial, after which everything is restored."""
    notes: list[str] = field(default_factory=list)
    met: Sequence[weakref.ref[Any]] = ()
    """Optimizers, models and loaders that an earlier run of the code has used."""


class Knob(ABC):
    """The base class of knobs. Each module of `knobs/` has an object `KNOB` of a subclass, listed in `knobs.KNOBS`."""

    name: str = ""
    """Key in Settings, such as `num_workers`."""
    label: str = ""
    """Label in the panel."""
    safety: Safety = Safety.SAFE
    changes: str = ""
    """Sentence on what the knob changes in the training; empty if every number stays the same."""
    front: bool = False
    """True to show it at once (num_workers, batch size, AMP), False to show it under 'more'."""
    written_with: str = ""
    """Group of knobs that are arguments of one call and are written together; empty for a knob written by itself."""
    written_late: int = 0
    """Order of knobs whose lines go to the same place: those with a higher number are written later."""
    needs_workers: str = ""
    """Sentence that says why it needs loader workers; empty if it does not."""
    lines_only: bool = False
    """True if it acts only through its lines in the cell; `turned` then restores what the lines changed."""
    is_switch: bool = False
    """True for a switch of the process: `turned` sets and restores it, even if the cell's text sets it."""
    bounds_only: bool = False
    """True if it measures a bound and is no way to train: no plan, sweep or code contains it."""
    only_rounds: bool = False
    """True if it changes only the number format; a trial measures the effect on the losses."""

    @abstractmethod
    def found(self, setup: Setup) -> SettingValue | None:
        """Returns the value as written, or None if there is nothing to turn (no loader, say)."""

    @abstractmethod
    def choices(self, setup: Setup) -> tuple[Choice, ...]:
        """Returns the values to offer, including the value as written, each with its refusal; never empty."""

    @abstractmethod
    def parsed(self, text: str) -> SettingValue:
        """Parses a value typed by the user (`--set num_workers=4`).

        Raises:
            ValueError: The text is wrong; the message is one sentence that names the right form.
        """

    def reason(self, value: SettingValue, setup: Setup) -> str:
        """Returns why a value that differs from the written one cannot be used in this loop; empty if it can.

        For an empty setup, when nothing is known of the loop, only the limits of this machine count.
        """
        return ""

    def is_noop(self, value: SettingValue, setup: Setup) -> bool:
        """Returns True if nothing has to be changed for this value in the loop of `setup`."""
        return value == self.found(setup)

    def draws_anew(self, setup: Setup) -> bool:
        """Returns True if turning it changes the random numbers or the order of samples, so that losses may differ."""
        return False

    def loss_reason(self, value: SettingValue | None, setup: Setup) -> str:
        """Returns a clause on why losses may differ without a fault if it is turned; empty if no reason is known."""
        return ""

    def turned(self, value: SettingValue, scope: TrialScope) -> AbstractContextManager[None]:
        """Turns the knob for the duration of the context, for objects made before and inside, then restores everything.

        It is not called for a value that is a no-op. If the cell's text contains the value, the text turns the knob;
        then only switches and knobs that act through lines alone are called, because the text restores nothing.

        Raises:
            Refused: The value cannot be used; raised before anything is changed, or out of the user's loop when a
                loader appears that does not support it.
        """
        return nullcontext()

    @abstractmethod
    def code(self, value: SettingValue, setup: Setup) -> str:
        """Returns the line(s) to paste into the user's program for this value."""

    @abstractmethod
    def edit(self, settings: Settings, draft: Draft) -> Edits:
        """Returns the change to the user's cells that gives them this setting.

        Args:
            settings: settings of this knob and its group.
            draft: cells to change, and the notes on the change.

        Raises:
            NotPlaced: The cells have no place for the change; the message says why.
        """


KnobTable = Mapping[str, Knob]


def choice(knob: Knob, value: SettingValue, label: str, setup: Setup) -> Choice:
    """Returns a value to offer, with its refusal if it cannot be used; the value as written has none."""
    return Choice(value, label, "" if value == knob.found(setup) else knob.reason(value, setup))
