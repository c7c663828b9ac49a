"""What is worked out only when a person unfolds it or comes near: the change of their own cells, what a trial touches.

It is done where requests are served, never on the thread that refreshes the page. Errors become one sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from gpu_doctor import formatting
from gpu_doctor.notebook import beforehand
from gpu_doctor.recording import SettingValue, describe
from gpu_doctor.report.panel.plan_state import fix_shown

if TYPE_CHECKING:
    from gpu_doctor.trials.case import Case

MOST_FIXES: Final = 16
"""Fixes that are kept for the page; the oldest goes."""


class Folds:
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
                "error": f"The change of your cells could not be worked out: {formatting.clean(error)}",
            }
        key = describe(settings)
        self.fixes = {name: one for name, one in self.fixes.items() if name != key}
        # The page finds it by its settings: it writes some figures in another way than Python does.
        self.fixes = dict([*self.fixes.items(), (key, {**shown, "settings": dict(settings)})][-MOST_FIXES:])

    def look_ahead(self) -> None:
        """Looks what a trial would touch."""
        try:
            self.before = beforehand.sentences(self._case.namespace, self._case.roots())
        except Exception as error:
            reason = f"{type(error).__name__}: {formatting.clean(error, 200)}"
            said = f"What a trial could not put back is not known ({reason})."
            self.before = [{"text": said, "tone": "bad"}]


_NOTHING: Final[dict[str, Any]] = {
    "lines": [],
    "cells": [],
    "notes": [],
    "paste": "",
    "complete": False,
    "error": "",
}
