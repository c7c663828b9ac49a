"""What is worked out only when a person unfolds it or comes near: the change of their own cells, what a trial touches.

It is done where requests are served, never on the thread that refreshes the page. Errors become one sentence.

What a trial would touch is said before the click, and only looked at when a person comes near the buttons: walking a
large namespace takes a few tenths of a second.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from gpu_doctor import formatting
from gpu_doctor.recording import SettingValue, describe
from gpu_doctor.report.panel import fix_shown
from gpu_doctor.trials import Walk, open_runs, room_bytes

if TYPE_CHECKING:
    from gpu_doctor.trials import Case

MOST_FIXES: Final = 16
"""Fixes that are kept for the page; the oldest goes."""
KEPT: Final = "restores model, optimizer, loaders, random generators and your variables"


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
            self.before = sentences(self._case.namespace, self._case.roots())
        except Exception as error:
            reason = f"{type(error).__name__}: {formatting.clean(error, 200)}"
            said = f"It is not known what a trial cannot restore ({reason})."
            self.before = [{"text": said, "tone": "bad"}]


_NOTHING: Final[dict[str, Any]] = {
    "lines": [],
    "cells": [],
    "notes": [],
    "paste": "",
    "complete": False,
    "error": "",
}


def sentences(namespace: dict[str, Any], roots: Iterable[object] = ()) -> list[dict[str, str]]:
    """What a person should know before a trial: `text` and `tone` (`bad` where something would not come back).

    Nothing is copied and nothing is run.

    Args:
        namespace: the names that the cell runs with. roots: further ones, as for `Snapshot.take`.
    """
    collecting = gc.isenabled()
    gc.disable()  # the collector would look through all that is seen again and again
    try:
        walk = Walk()
        walk.over([namespace], roots)
        tensors, arrays = walk.stores()
    finally:
        if collecting:
            gc.enable()
    needed, whole = tensors.host_bytes + arrays.bytes, tensors.bytes + arrays.bytes
    limit = room_bytes()
    if needed > limit:
        text = (
            f"A trial will be refused: a copy of the state needs {formatting.size(needed)}, and only "
            f"{formatting.size(limit)} may be used for it. Free memory, or delete large variables that the cell does "
            "not need."
        )
        return [{"text": text, "tone": "bad"}]
    kept = (
        f"A trial {KEPT} (a copy of {formatting.size(whole)}). It does not undo files that your cell writes or data "
        "that it sends."
    )
    said = [{"text": kept, "tone": ""}]
    large = (*tensors.large, *arrays.large)
    if large:
        said.append({"text": formatting.sentence(formatting.not_copied(large)), "tone": ""})
    lost = (*walk.lost, *tensors.lost, *open_runs())
    if lost:
        said.append({"text": formatting.sentence(formatting.unrestorable(lost)), "tone": "bad"})
    return said
