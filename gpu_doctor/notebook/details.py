"""What is worked out only when a person unfolds it or comes near: the change of their own cells, what a trial touches.

It is done where requests are served, never on the thread that refreshes the page. Errors become one sentence.

What a trial would touch is said before the click, and only looked at when a person comes near the buttons: walking a
large namespace takes a few tenths of a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from gpu_doctor import formatting
from gpu_doctor.recording import Settings, describe
from gpu_doctor.report.panel import FixShown, Notice, fix_shown
from gpu_doctor.trials import PERMISSIONS

if TYPE_CHECKING:
    from gpu_doctor.cell import Fix
    from gpu_doctor.trials import Case

MOST_FIXES: Final = 16
"""Fixes, and settings to forecast, that are kept for the page; the oldest goes."""


class Details:
    """What of one case is unfolded."""

    def __init__(self, fix: Callable[[dict[str, Any]], Fix], before: Callable[[], tuple[Notice, ...]] = tuple) -> None:
        """`fix`: works out the change for settings. `before`: what to know before a trial."""
        self._fix, self._before = fix, before
        self.fixes: dict[str, FixShown] = {}
        """By `describe(settings)`; the page finds one by its settings, as it writes some figures in another way."""
        self.asked: tuple[Settings, ...] = ()
        """Settings whose forecast the page asked for; told with the state, anew after every run and trial."""
        self.before: tuple[Notice, ...] | None = None
        """What to know before a trial, None while nobody asked since the last run."""

    def fix(self, settings: Settings) -> None:
        """Works out the change of the user's cells for settings."""
        try:
            shown = fix_shown(self._fix(dict(settings)), settings)
        except Exception as error:
            why = f"The change could not be written into your cells: {formatting.clean(error)}"
            shown = FixShown((), (), (), paste="", complete=False, error=why, settings=settings)
        key = describe(settings)
        self.fixes = {name: one for name, one in self.fixes.items() if name != key}
        self.fixes = dict([*self.fixes.items(), (key, shown)][-MOST_FIXES:])

    def foretell(self, settings: Settings) -> None:
        """Has the forecast of settings told."""
        self.asked = (*(one for one in self.asked if one != settings), dict(settings))[-MOST_FIXES:]

    def look_ahead(self) -> None:
        """Looks what a trial would touch."""
        try:
            self.before = self._before()
        except Exception as error:
            unknown = f"It is not known what a trial cannot restore ({formatting.raised(error)})."
            self.before = (Notice(unknown, "bad"),)


def sentences(case: Case) -> tuple[Notice, ...]:
    """What a person should know before a trial; its tone is `bad` where something would not come back.

    Nothing is copied and nothing is run.
    """
    said = case.beforehand()
    allow = {sentence: name for name, sentence in said.asks.items()}
    return (
        *(_refused(one, allow.get(one, "")) for one in said.refusals),
        *(Notice(one, "") for one in said.notes),
        *(Notice(one, "bad") for one in said.lost),
    )


def _refused(sentence: str, allow: str) -> Notice:
    tick = PERMISSIONS[allow].tick if allow else ""
    return Notice(f"A trial will be refused. {sentence}", "bad", allow, tick)
