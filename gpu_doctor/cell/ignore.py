"""Which rules a cell switches off: `# gpudoctor: ignore slow-python, slow_collate because I plot`."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from gpu_doctor.formatting import did_you_mean

_COMMENT: Final = re.compile(r"#\s*gpudoctor:\s*ignore\b:?([^\n]*)", re.IGNORECASE)
_REASON: Final = re.compile(r"[:;.(#]|\s-+\s")
"""Behind such a mark stands no name any more, but a reason (`throttled` is a word too)."""
_WORD: Final = re.compile(r"(,?)\s*([\w\-/]+)[^\w\-/,]*")
"""A word, the comma before it, and what else stands behind it, such as a quotation mark."""
NEAR: Final = 0.8
"""So alike to a rule's name (difflib's ratio) is a word that was meant as one; free words are not."""


def hushed(source: str, rules: Collection[str]) -> tuple[set[str], tuple[str, ...]]:
    """Reads the comments in a cell that ask for quiet.

    A comment begins with names of rules, divided by commas or spaces; free words may follow, such as the reason.

    Args:
        source: of the cell.
        rules: the names that there are.

    Returns:
        The rules named, and a sentence for each name that no rule has.
    """
    named: set[str] = set()
    notes: list[str] = []
    for said in _COMMENT.findall(source):
        names = _REASON.split(said)[0]
        words = [(bool(comma), word.strip("-").lower().replace("_", "-")) for comma, word in _WORD.findall(names)]
        if not words:
            notes.append("`# gpudoctor: ignore` needs the name of a rule, such as `# gpudoctor: ignore slow-python`.")
        for place, (comma, word) in enumerate(words):
            near = did_you_mean(word, rules, cutoff=NEAR)
            if word in rules:
                named.add(word)
            elif near or place == 0 or (comma and "-" in word):
                notes.append(f"`# gpudoctor: ignore`: there is no rule {word}.{near}")
            elif word != "and":
                break  # free words from here on
    return named, tuple(dict.fromkeys(notes))
