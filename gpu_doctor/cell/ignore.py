"""Reads the rules that a cell switches off: `# gpudoctor: ignore slow-python, slow_collate because I plot`."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from gpu_doctor.formatting import did_you_mean

_COMMENT: Final = re.compile(r"#\s*gpudoctor:\s*ignore\b:?([^\n]*)", re.IGNORECASE)
_REASON: Final = re.compile(r"[:;.(#]|\s-+\s")
"""Marks after which the names end and a reason follows, which may contain a rule's name (`throttled` is a word too)."""
_WORD: Final = re.compile(r"(,?)\s*([\w\-/]+)[^\w\-/,]*")
"""A word, the comma before it, and further characters after it, such as a quotation mark."""
NEAR: Final = 0.8
"""Similarity (difflib's ratio) from which a word counts as a misspelled rule rather than a free word."""


def ignored_rules(source: str, rules: Collection[str]) -> tuple[set[str], tuple[str, ...]]:
    """Reads the comments in a cell that switch rules off.

    A comment begins with names of rules, separated by commas or spaces; free words such as a reason may follow.

    Args:
        source: Text of the cell.
        rules: Names of all rules.

    Returns:
        The rules named, and a sentence about each name that is no rule.
    """
    named: set[str] = set()
    notes: list[str] = []
    for comment in _COMMENT.findall(source):
        names = _REASON.split(comment)[0]
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
