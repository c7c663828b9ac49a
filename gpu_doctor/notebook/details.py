"""What is worked out only when a person unfolds it or comes near: the change of their own cells, what a trial touches.

It is done where requests are served, never on the thread that refreshes the page. Errors become one sentence.

What a trial would touch is said before the click, and only looked at when a person comes near the buttons: walking a
large namespace takes a few tenths of a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from gpu_doctor import formatting
from gpu_doctor.recording import SettingValue, describe
from gpu_doctor.report.panel import fix_shown

if TYPE_CHECKING:
    from gpu_doctor.trials import Case

MOST_FIXES: Final = 16
"""Fixes that are kept for the page; the oldest goes."""


class Details:
    """What of one case is unfolded."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.fixes: dict[str, dict[str, Any]] = {}
        """By `describe(settings)`: what `fix_shown` gives."""
        self.before: list[dict[str, str]] | None = None
        """What to know before a trial, None while nobody asked since the last run."""

    def fix(self, settings: Mapping[str, SettingValue]) -> None:
        """Works out the change of the user's cells for settings."""
        try:
            shown = fix_shown(self._case.fix(dict(settings)))
        except Exception as error:
            shown = {
                **_NOTHING,
                "error": f"The change could not be written into your cells: {formatting.clean(error)}",
            }
        key = describe(settings)
        self.fixes = {name: one for name, one in self.fixes.items() if name != key}
        # The page finds it by its settings: it writes some figures in another way than Python does.
        self.fixes = dict([*self.fixes.items(), (key, {**shown, "settings": dict(settings)})][-MOST_FIXES:])

    def look_ahead(self) -> None:
        """Looks what a trial would touch."""
        try:
            self.before = sentences(self._case)
        except Exception as error:
            reason = f"{type(error).__name__}: {formatting.clean(error, 200)}"
            unknown = f"It is not known what a trial cannot restore ({reason})."
            self.before = [{"text": unknown, "tone": "bad"}]


_NOTHING: Final[dict[str, Any]] = {
    "lines": [],
    "cells": [],
    "notes": [],
    "paste": "",
    "complete": False,
    "error": "",
}


def sentences(case: Case) -> list[dict[str, str]]:
    """What a person should know before a trial: `text` and `tone` (`bad` where something would not come back).

    Nothing is copied and nothing is run.
    """
    said = case.beforehand()
    refused = [f"A trial will be refused. {one}" for one in said.refusals]
    return [
        *({"text": one, "tone": "bad"} for one in refused),
        *({"text": one, "tone": ""} for one in said.notes),
        *({"text": one, "tone": "bad"} for one in said.lost),
    ]
