"""What is worked out only when a person unfolds it or comes near: the change of their own cells, what a trial touches.

It is done where requests are served, never on the thread that refreshes the page. Errors become one sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from gpu_doctor import wording
from gpu_doctor.fixes import Fix
from gpu_doctor.notebook import beforehand
from gpu_doctor.recording import SettingValue, describe

if TYPE_CHECKING:
    from gpu_doctor.casefile import Case

MOST_FIXES: Final = 16
"""Fixes that are kept for the page; the oldest goes."""
MOST_LINES: Final = 600
MOST_LETTERS: Final = 2000


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
            shown = {**_NOTHING, "error": f"The change of your cells could not be worked out: {wording.clean(error)}"}
        key = describe(settings)
        self.fixes = {name: one for name, one in self.fixes.items() if name != key}
        # The page finds it by its settings: it writes some figures in another way than Python does.
        self.fixes = dict([*self.fixes.items(), (key, {**shown, "settings": dict(settings)})][-MOST_FIXES:])

    def look_ahead(self) -> None:
        """Looks what a trial would touch."""
        try:
            self.before = beforehand.sentences(self._case.namespace, self._case.roots())
        except Exception as error:
            said = (
                f"What a trial could not put back is not known ({type(error).__name__}: {wording.clean(error, 200)})."
            )
            self.before = [{"text": said, "tone": "bad"}]


_NOTHING: Final[dict[str, Any]] = {
    "lines": [],
    "cells": [],
    "notes": [],
    "paste": "",
    "complete": False,
    "error": "",
}


def fix_shown(fix: Fix) -> dict[str, Any]:
    """A fix for the page: `lines` (kind, text) of the diff, `cells` (label, text) whole, `notes`, `paste`."""
    lines = [[kind, wording.clean(text, MOST_LETTERS)] for kind, text in fix.lines() if kind not in ("note", "paste")]
    if len(lines) > MOST_LINES:
        lines = [*lines[:MOST_LINES], ["place", f"and {wording.count(len(lines) - MOST_LINES, 'more line')}"]]
    notes = [wording.clean(note, 600) for note in fix.notes]
    if not fix.cells and not fix.paste and not notes:
        notes = ["Nothing to change: the cell is as it should be."]
    return {
        "lines": lines,
        # What is copied is the user's own text to the letter, but for halves of letters, which no page can hold.
        "cells": [{"label": wording.clean(one.label, 80), "text": _whole(one.after)} for one in fix.cells],
        "notes": notes,
        "paste": _whole(fix.paste),
        "complete": fix.complete,
        "error": "",
    }


def _whole(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
