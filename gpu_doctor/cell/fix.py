"""What a fix is: the cells that change, as a diff, as whole cells, and in words."""

from __future__ import annotations

import difflib
import html
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpu_doctor import formatting
from gpu_doctor.recording import SettingValue, describe


@dataclass(frozen=True)
class FixedCell:
    """One cell, before and after."""

    label: str
    before: str
    after: str


@dataclass(frozen=True)
class Fix:
    """What to change in the user's cells for some settings."""

    settings: Mapping[str, SettingValue] = field(default_factory=dict)
    cells: tuple[FixedCell, ...] = ()
    """The cells that change, whole, oldest first."""
    notes: tuple[str, ...] = ()
    """What a person should know: what could not be placed and why, what else the change touches."""
    paste: str = ""
    """Lines for what could not be placed; empty if everything was."""
    complete: bool = True
    """Run as they stand in `cells`, the cells have the settings."""

    @property
    def diff(self) -> str:
        """A unified diff of all cells; empty if nothing changes."""
        return "\n".join(text for kind, text in self.lines() if kind != "note" and kind != "paste")

    def lines(self) -> tuple[tuple[str, str], ...]:
        """What a panel shows, line by line: (kind, text).

        Kinds: `head` and `place` of a diff, `same`, `removed` and `added` lines of it (with their ` `, `-`, `+`), then
        `note` for sentences and `paste` for lines to paste.
        """
        shown: list[tuple[str, str]] = []
        for cell in self.cells:
            shown += _diff_lines(cell, describe(self.settings))
        shown += [("note", note) for note in self.notes]
        shown += [("paste", line) for line in self.paste.splitlines()]
        return tuple(shown)

    @property
    def said(self) -> tuple[str, ...]:
        """The notes; where there is nothing to change and to note, why."""
        if self.cells or self.notes or self.paste:
            return self.notes
        why = "the cell has these settings already" if self.settings else "there is no setting to write into the cell"
        return (f"Nothing to change: {why}.",)

    @property
    def copied(self) -> str:
        """What a copy button copies: the changed cells whole, the newest last, then the lines to paste."""
        parts = [cell.after if len(self.cells) == 1 else f"# {cell.label}\n{cell.after}" for cell in self.cells]
        return "\n\n".join([*parts, *([self.paste] if self.paste else [])])

    def __str__(self) -> str:
        return "\n".join(part for part in (self.diff, *self.said, self.paste) if part)

    def _repr_html_(self) -> str:
        # The page's own ink on a tint (Okabe-Ito): it is read on a dark page as well, and + and - say the same.
        styles = {"removed": "background:rgba(213,94,0,.2)", "added": "background:rgba(0,158,115,.22)"}
        styles |= dict.fromkeys(("place", "head"), "opacity:.72")
        rows = []
        for kind, text in self.lines():
            style = f' style="{styles[kind]}"' if kind in styles else ""
            rows.append(f"<span{style}>{html.escape(text)}</span>")
        return f"<pre>{chr(10).join(rows) or html.escape(str(self))}</pre>"

    _repr_pretty_ = formatting.pretty


def _diff_lines(cell: FixedCell, told: str) -> Iterable[tuple[str, str]]:
    before, after = (text.replace("\r\n", "\n").replace("\r", "\n").split("\n") for text in (cell.before, cell.after))
    if before[-1] == after[-1] == "":  # both end in a line break: there is no empty line behind it
        before, after = before[:-1], after[:-1]
    kinds = {"---": "head", "+++": "head", "@": "place", "-": "removed", "+": "added"}
    for number, line in enumerate(
        difflib.unified_diff(before, after, cell.label, f"{cell.label}, with {told}", lineterm="")
    ):
        kind = kinds[line[:3]] if number < 2 else kinds.get(line[:1], "same")
        yield kind, line
