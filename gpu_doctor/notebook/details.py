"""Computes details on request only: the change to the user's cells, and what a trial would touch.

They are computed where requests are served, never on the thread that refreshes the page. Errors become one sentence.

The panel says before the click what a trial would touch. It requests that when the pointer comes near the buttons,
because walking a large namespace takes a few tenths of a second.
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
"""Largest number of fixes, and of settings to forecast, stored for the page; the oldest is dropped."""


class Details:
    """The details of one case that the page has requested."""

    def __init__(self, fix: Callable[[dict[str, Any]], Fix], before: Callable[[], tuple[Notice, ...]] = tuple) -> None:
        """Starts without details.

        Args:
            fix: computes the change to the user's cells for some settings.
            before: computes the sentences to read before a trial.
        """
        self._fix, self._before = fix, before
        self.fixes: dict[str, FixShown] = {}
        """Changes by `describe(settings)`. The page finds a change by its settings, because it formats some values
        differently."""
        self.asked: tuple[Settings, ...] = ()
        """Settings whose forecast the page requested; the state has their forecasts after every run and trial."""
        self.before: tuple[Notice, ...] | None = None
        """Sentences to read before a trial; None if the page has not requested them since the last run."""

    def fix(self, settings: Settings) -> None:
        """Computes and stores the change to the user's cells for some settings."""
        try:
            shown = fix_shown(self._fix(dict(settings)), settings)
        except Exception as error:
            why = f"The change could not be written into your cells: {formatting.clean(error)}"
            shown = FixShown((), (), (), paste="", complete=False, error=why, settings=settings)
        key = describe(settings)
        self.fixes = {name: fix for name, fix in self.fixes.items() if name != key}
        self.fixes = dict([*self.fixes.items(), (key, shown)][-MOST_FIXES:])

    def request_forecast(self, settings: Settings) -> None:
        """Adds settings to those whose forecast the state contains."""
        self.asked = (*(other for other in self.asked if other != settings), dict(settings))[-MOST_FIXES:]

    def preview(self) -> None:
        """Computes and stores the sentences on what a trial would touch."""
        try:
            self.before = self._before()
        except Exception as error:
            unknown = f"What a trial cannot restore is unknown ({formatting.raised(error)})."
            self.before = (Notice(unknown, "bad"),)


def sentences(case: Case) -> tuple[Notice, ...]:
    """Returns the sentences to read before a trial, with the tone `bad` for anything that cannot be restored.

    Nothing is copied and nothing is run.
    """
    preview = case.beforehand()
    allow = {sentence: name for name, sentence in preview.asks.items()}
    return (
        *(_refused(refusal, allow.get(refusal, "")) for refusal in preview.refusals),
        *(Notice(note, "") for note in preview.notes),
        *(Notice(loss, "bad") for loss in preview.lost),
    )


def _refused(sentence: str, allow: str) -> Notice:
    tick = PERMISSIONS[allow].tick if allow else ""
    return Notice(f"A trial will be refused. {sentence}", "bad", allow, tick)
