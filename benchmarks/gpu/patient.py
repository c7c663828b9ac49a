"""A patient on a GPU: a cell as people write it, sick and cured, and the rule that should name its trouble."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

PASTED: Final = frozenset({"num_workers", "prefetch_factor", "persistent_workers", "pin_memory"})
"""Knobs that are keywords of a loader: a prescription of these alone is what is timed as the cure."""


@dataclass(frozen=True)
class Patient:
    """What is known of a loop by construction; what its cure gains is measured, never written down."""

    rule: str
    klass: str
    """The bottleneck class."""
    before: str
    """The cells above: they make `steps`, `device`, the loader and the model."""
    sick: str
    cured: str = ""
    """Empty where there is nothing to time: the rule says to leave it, or warns of what has not happened yet."""
    samples: float = 1.0
    """Samples of a step of the cured loop over those of the sick one."""
    batch: int = 0
    """Samples of a batch of the sick loop, where the cure is a larger one: `large_batch` of the cells above."""
    loader: str = ""
    """How the cells above make their loader, where its keywords are the cure,"""
    by_hand: str = ""
    """and what cures it where nothing was prescribed."""
    others: tuple[str, ...] = ()
    """Rules that may come first as well."""
    name: str = ""
    """Empty = the rule's."""

    @property
    def key(self) -> str:
        """What its rows are called."""
        return self.name or self.rule

    @property
    def wanted(self) -> tuple[str, ...]:
        """The rules of which one must come first."""
        return (self.rule, *self.others)

    def above(self, device: str, steps: int, rows: int) -> str:
        """The cells above, for a device, a number of steps and a size of the net."""
        return self.before.replace("DEVICE", device).replace("STEPS", str(steps)).replace("ROWS", str(rows))

    def cure(self, above: str, settings: Mapping[str, Any]) -> tuple[str, float, bool]:
        """The cells above as the cure has them, its samples over the sick loop's, and whether that is what was
        prescribed: settings are written in where they can be, else the known cure is taken."""
        if self.loader:
            fits = bool(settings) and PASTED.issuperset(settings)
            words = ", ".join(f"{name}={value!r}" for name, value in settings.items()) if fits else self.by_hand
            return above.replace(self.loader, _with(self.loader, words)), self.samples, fits
        if self.batch and set(settings) == {"batch_size"}:
            size = int(settings["batch_size"])
            return re.sub(r"large_batch = \d+", f"large_batch = {size}", above), size / self.batch, True
        return above, self.samples, not self.batch


def _with(loader: str, words: str) -> str:
    """A loader with keywords, in place of those that it has of the same name."""
    new = {word.partition("=")[0].strip() for word in words.split(", ")}
    kept = [word for word in loader[:-1].split(", ") if word.partition("=")[0].strip() not in new]
    return f"{', '.join([*kept, words])})"
