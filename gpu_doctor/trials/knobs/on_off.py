"""Knobs with two positions: how they are offered and how a person types them."""

from __future__ import annotations

from gpu_doctor.recording import SettingValue, Setup
from gpu_doctor.trials.knobs.knob import Choice


class OnOffKnob:
    """What knobs with two positions share; see `Knob` for what each of them says itself."""

    name = ""
    front = False
    written_with = ""
    on_label = "on"

    def choices(self, setup: Setup) -> tuple[Choice, ...]:
        labels = {False: "off", True: self.on_label}
        return tuple(Choice(value, label, self.refusal(value, setup)) for value, label in labels.items())

    def parsed(self, text: str) -> bool:
        return on_or_off(text, self.name)

    def refusal(self, value: SettingValue, setup: Setup) -> str:
        raise NotImplementedError


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
