"""Knobs with two positions: how they are offered and how a person types them."""

from __future__ import annotations

from gpu_doctor.recording import Setup
from gpu_doctor.trials.knobs.knob import Choice, Knob, choice


class OnOffKnob(Knob):
    """The base class of knobs with two positions."""

    kind: type[int] = bool
    on_label = "on"

    def choices(self, setup: Setup) -> tuple[Choice, ...]:
        """See `Knob`."""
        labels = {False: "off", True: self.on_label}
        return tuple(choice(self, value, label, setup) for value, label in labels.items())

    def parsed(self, text: str) -> bool:
        """See `Knob`."""
        word = text.strip().lower()
        if word in ("true", "on", "yes", "1"):
            return True
        if word in ("false", "off", "no", "0"):
            return False
        raise ValueError(f"{self.name} takes True or False, such as {self.name}=True.")
