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
    """A knob cannot honour a value; the message is the reason, in one sentence that says what to do instead."""


@dataclass(frozen=True)
class Choice:
    """One value a person may pick; `refusal` says why not, in one sentence, where it cannot be honoured."""

    value: SettingValue
    label: str
    refusal: str = ""


@dataclass
class TrialScope:
    """The context in which a knob is turned: the code's namespace, and the setup that the baseline run found."""

    namespace: dict[str, Any]
    setup: Setup = field(default_factory=Setup)
    reasons: Mapping[str, str] | None = None
    """Setting that the running text does not have -> the reason; None = it has none of them."""
    in_trial: bool = False
    """The run is a side of a trial, of which all is put back."""
    notes: list[str] = field(default_factory=list)
    met: Sequence[weakref.ref[Any]] = ()
    """Optimizers, models and loaders that an earlier run of the code has used."""


class Knob(ABC):
    """One file of the shelf `knobs/`: an object `KNOB` of a class with these members, listed in `knobs.KNOBS`."""

    name: str = ""
    """Key in Settings, such as `num_workers`."""
    label: str = ""
    """Label in the panel."""
    safety: Safety = Safety.SAFE
    changes: str = ""
    """One sentence on what the knob changes in the training; empty if every number stays the same."""
    front: bool = False
    """Shown at once (num_workers, batch size, AMP) rather than under 'more'."""
    written_with: str = ""
    """Knobs of one such group are arguments of one call and are written together; empty = each by itself."""
    written_late: int = 0
    """Lines of several knobs may meet at one place: those of a higher number are written later."""
    needs_workers: str = ""
    """Why it cannot be turned where the loader has no workers, one sentence; empty where it can."""
    lines_only: bool = False
    """It acts by its lines in the cell alone; `turned` puts back what they have changed."""
    is_switch: bool = False
    """It is a switch of the process: `turned` sets it, and puts it back, also where the cell's text sets it."""
    bounds_only: bool = False
    """The knob measures a bound and is no way to train: no plan, sweep or code contains it."""
    only_rounds: bool = False
    """The knob changes only the number format; a trial measures the effect on the losses."""

    @abstractmethod
    def found(self, setup: Setup) -> SettingValue | None:
        """The value as written, None if there is nothing to turn (no loader, say)."""

    @abstractmethod
    def choices(self, setup: Setup) -> tuple[Choice, ...]:
        """Values to offer, the one as written among them, each with its refusal; never empty."""

    @abstractmethod
    def parsed(self, text: str) -> SettingValue:
        """Parses a value typed by a person (`--set num_workers=4`).

        Raises:
            ValueError: one sentence that names the right form.
        """

    def reason(self, value: SettingValue, setup: Setup) -> str:
        """Returns why a value that differs from the written one cannot be used in this loop; empty if it can.

        With an empty setup nothing was found out yet: only what this machine cannot do at all speaks against it.
        """
        return ""

    def is_noop(self, value: SettingValue, setup: Setup) -> bool:
        """True if nothing has to be changed for this value in the loop of `setup`."""
        return value == self.found(setup)

    def draws_anew(self, setup: Setup) -> bool:
        """True if turning it draws other random numbers, or the samples in another order: losses may differ then."""
        return False

    def loss_reason(self, value: SettingValue | None, setup: Setup) -> str:
        """Returns why losses may differ for no fault where it is turned, a clause; empty where no reason is known."""
        return ""

    def turned(self, value: SettingValue, scope: TrialScope) -> AbstractContextManager[None]:
        """Turns the knob for the duration of the context, for objects made before and inside; then puts all back.

        It is not asked for a value that is a no-op. A value that the cell's text has is turned by the text: only a
        switch, and a knob that acts by its lines alone, is asked then, since the text puts nothing back.

        Raises:
            Refused: before anything was changed, or out of the user's loop when a loader shows up that cannot.
        """
        return nullcontext()

    @abstractmethod
    def code(self, value: SettingValue, setup: Setup) -> str:
        """Returns the line(s) to paste into the user's program for this value."""

    @abstractmethod
    def edit(self, settings: Settings, draft: Draft) -> Edits:
        """Returns the change of the user's cells that gives them this setting.

        Args:
            settings: this knob's, and those of its group.
            draft: the cells, and what to tell of the change.

        Raises:
            NotPlaced: if they have no place for it; the message says why.
        """


KnobTable = Mapping[str, Knob]


def choice(knob: Knob, value: SettingValue, label: str, setup: Setup) -> Choice:
    """A value to offer, with the reason against it where there is one; the value as written has none."""
    return Choice(value, label, "" if value == knob.found(setup) else knob.reason(value, setup))
