"""A fix of the user's cells: the changes as a diff, as whole cells and in words."""

from __future__ import annotations

import difflib
import html
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpu_doctor import formatting
from gpu_doctor.recording import SettingValue, describe


@dataclass(frozen=True)
class FixedCell:
    """The text of one cell before and after a fix."""

    label: str
    before: str
    after: str


@dataclass(frozen=True)
class Fix:
    """The changes that give the user's cells some settings."""

    settings: Mapping[str, SettingValue] = field(default_factory=dict)
    """Value of each setting, by the knob's name."""
    cells: tuple[FixedCell, ...] = ()
    """The whole text of each cell that changes, oldest first."""
    notes: tuple[str, ...] = ()
    """Sentences for the user: changes that could not be placed and why, and other effects of the changes."""
    paste: str = ""
    """Lines to paste by hand for changes that could not be placed; empty if all were."""
    complete: bool = True
    """True if the changed cells have all settings when they are run as they are."""

    @property
    def diff(self) -> str:
        """Unified diff of all cells; empty if nothing changes."""
        return "\n".join(text for kind, text in self.lines() if kind != "note" and kind != "paste")

    def lines(self) -> tuple[tuple[str, str], ...]:
        """Returns the lines that a panel shows, as (kind, text).

        Kinds: `head` and `place` of a diff; its lines `same`, `removed` and `added`, with their ` `, `-` or `+`; then
        `note` for sentences and `paste` for lines to paste.
        """
        shown: list[tuple[str, str]] = []
        for cell in self.cells:
            shown += _diff_lines(cell, describe(self.settings))
        shown += [("note", note) for note in self.notes]
        shown += [("paste", line) for line in self.paste.splitlines()]
        return tuple(shown)

    @property
    def remarks(self) -> tuple[str, ...]:
        """The notes; if there is nothing to change or to note, a sentence with the reason."""
        if self.cells or self.notes or self.paste:
            return self.notes
        why = "the cell has these settings already" if self.settings else "there is no setting to write into the cell"
        return (f"Nothing to change: {why}.",)

    @property
    def copied(self) -> str:
        """Text for a copy button: the whole changed cells, the newest last, then the lines to paste."""
        parts = [cell.after if len(self.cells) == 1 else f"# {cell.label}\n{cell.after}" for cell in self.cells]
        return "\n\n".join([*parts, *([self.paste] if self.paste else [])])

    def __str__(self) -> str:
        return "\n".join(part for part in (self.diff, *self.remarks, self.paste) if part)

    def _repr_html_(self) -> str:
        # The page's text colour on a tint (Okabe-Ito): readable on a dark page too, and + and - carry the same meaning.
        styles = {"removed": "background:rgba(213,94,0,.2)", "added": "background:rgba(0,158,115,.22)"}
        styles |= dict.fromkeys(("place", "head"), "opacity:.72")
        rows = []
        for kind, text in self.lines():
            style = f' style="{styles[kind]}"' if kind in styles else ""
            rows.append(f"<span{style}>{html.escape(text)}</span>")
        return f"<pre>{chr(10).join(rows) or html.escape(str(self))}</pre>"

    _repr_pretty_ = formatting.pretty


def _diff_lines(cell: FixedCell, settings: str) -> Iterable[tuple[str, str]]:
    """Yields the lines of a cell's diff as (kind, text); `settings` in words stands in its head."""
    before, after = (text.replace("\r\n", "\n").replace("\r", "\n").split("\n") for text in (cell.before, cell.after))
    if before[-1] == after[-1] == "":  # both end in a line break, which `split` turns into an empty last line
        before, after = before[:-1], after[:-1]
    kinds = {"---": "head", "+++": "head", "@": "place", "-": "removed", "+": "added"}
    for number, line in enumerate(
        difflib.unified_diff(before, after, cell.label, f"{cell.label}, with {settings}", lineterm="")
    ):
        kind = kinds[line[:3]] if number < 2 else kinds.get(line[:1], "same")
        yield kind, line
