"""Text of the product and of the benchmarks, as Markdown that shows it letter for letter."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Final

_CODE: Final = re.compile(r"(`[^`]+`)")
_SPECIAL: Final = re.compile(r"([\\*_<>\[\]|#])")


def prose(text: str) -> str:
    """A sentence in which only what stands between backquotes is marked up, as code."""
    parts = _CODE.split(text)
    return "".join(part.replace("|", r"\|") if at % 2 else _SPECIAL.sub(r"\\\1", part) for at, part in enumerate(parts))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; its cells are Markdown already."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def code(text: str, language: str) -> str:
    """A block of code."""
    return f"```{language}\n{text.strip(chr(10))}\n```"


def difference(before: str, after: str) -> str:
    """What was changed, as a block of a diff without the names of files; empty where nothing was."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)
    changed = list(lines)[2:]
    return code("\n".join(changed), "diff") if changed else ""
