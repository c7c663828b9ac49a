"""What knobs on the DataLoader share: which loaders are meant, why they refuse, and how they are changed for a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gpu_doctor import loaders
from gpu_doctor.knobs.knob import Refused, TrialScope
from gpu_doctor.recording import LoaderSetup, SettingValue, Setup

NO_LOADER = "The cell pulls from no DataLoader, so there is nothing to turn."


def trained_from(setup: Setup) -> LoaderSetup | None:
    """The loader that a knob is about: the first that trains, else the first that does not evaluate."""
    others = [one for one in setup.loaders if one.role != "evaluation"]
    return setup.training_loader or (others[0] if others else None)


def loader_refusal(knob: str, setup: Setup) -> str:
    """Why no training loader of `setup` can honour `knob`: there is none, or the first one's reason."""
    if trained_from(setup) is None:
        return NO_LOADER
    reasons = [one.refusals.get(knob, "") for one in setup.loaders if one.role == "training"]
    return next((said for said in reasons if said), "")


@contextmanager
def loaders_turned(knob: str, value: SettingValue, scope: TrialScope) -> Iterator[None]:
    """Gives every training loader `value`, made before or inside the context; then puts all back.

    Loaders that evaluate keep their settings: with a baseline's setup, only loaders that it saw training are meant.
    With no setup yet, all are meant, and one that cannot is noted rather than ending the run: it may be unused.

    Raises:
        Refused: if a loader that is known to train cannot honour it.
    """
    stems = {loaders.key_stem(one.key) for one in scope.setup.loaders if one.role == "training"}
    only: Callable[[Any], bool] | None = (lambda one: loaders.key_stem_of(one) in stems) if stems else None

    def refused(loader: Any, reason: str) -> None:
        if stems:
            raise Refused(reason)
        scope.notes.append(f"{knob}={value} was not applied to one {type(loader).__name__}: {reason}")

    with loaders.changing({knob: value}, only, refused):
        yield


def whole_number(text: str, knob: str, least: int) -> int:
    """A count typed by a person.

    Raises:
        ValueError: if it is no whole number, or below `least`.
    """
    try:
        number = int(text.replace("_", "").strip())
    except ValueError:
        number = least - 1
    if number < least:
        raise ValueError(f"{knob} takes a whole number from {least} up, such as {knob}={max(least, 4)}.")
    return number


def on_or_off(text: str, knob: str) -> bool:
    """A switch typed by a person.

    Raises:
        ValueError: if it is neither on nor off.
    """
    word = text.strip().lower()
    if word in ("true", "on", "yes", "1"):
        return True
    if word in ("false", "off", "no", "0"):
        return False
    raise ValueError(f"{knob} takes True or False, such as {knob}=True.")
