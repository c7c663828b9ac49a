"""The page of a cause: as text, as HTML for a notebook, and as parts (flowing paragraphs and code) for the panel."""

from __future__ import annotations

import re
import textwrap
from functools import lru_cache
from html import escape
from typing import Final, NamedTuple

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import every_cause
from gpu_doctor.diagnosis.rules.rule import Cause

IN_CODE: Final = "In code"
"""Heading of the section that holds code: the lines that show the problem, and the same lines cured."""
_CODE: Final = re.compile("`([^`]+)`")


class Part(NamedTuple):
    """One paragraph of a page, or its code."""

    title: str
    """Heading of the part; empty if it has none."""
    text: str
    code: bool = False
    """True if `text` is code, whose line breaks count."""


class Page:
    """The page of one cause."""

    def __init__(self, cause: Cause) -> None:
        self.cause = cause

    def __str__(self) -> str:
        return f"{self.cause.name} ({self.cause.family})\n\n{self.cause.page}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = f"<b>{escape(self.cause.name)}</b> &nbsp;<span>{escape(self.cause.family)}</span>"
        body = "".join(_block(part) for part in paragraphs(self.cause.page))
        return f'<div style="max-width:48em;line-height:1.5">{head}{body}</div>'


def _block(part: Part) -> str:
    """Renders one part with its heading as HTML; text between backticks becomes `<code>`."""
    title, text = part.title, escape(part.text, quote=False)
    head = f'<div style="margin-top:10px;font-weight:600">{escape(title)}</div>' if title else ""
    if part.code:
        return f'{head}<pre style="margin:4px 0 0;overflow-x:auto">{text}</pre>'
    marked = _CODE.sub(r"<code>\1</code>", text)
    return f'{head}<div style="margin-top:{2 if title else 8}px">{marked}</div>'


@lru_cache(maxsize=256)
def paragraphs(page: str) -> tuple[Part, ...]:
    """Splits a page into its parts. Joins the lines of a paragraph, which the docstring breaks to fit the source."""
    found = []
    for block in page.strip().split("\n\n"):
        first, *rest = block.splitlines() or [""]
        indented = bool(rest) and all(line.startswith(" ") for line in rest) and not first.startswith(" ")
        title, lines = (first, rest) if indented else ("", [first, *rest])
        if title == IN_CODE:
            found.append(Part(title, textwrap.dedent("\n".join(lines)), code=True))
        else:
            found.append(Part(title, " ".join(line.strip() for line in lines)))
    return tuple(found)


def explain(rule: str) -> Page:
    """Returns the page of a cause: What it means / Why it costs you / What to try / In code / When to leave it.

    Raises:
        ValueError: if there is no such cause; the message names the nearest ones.
        TypeError: if `rule` is not a string.

    Example:
        >>> import gpu_doctor
        >>> print(gpu_doctor.explain("loader-without-workers"))
        loader-without-workers (input)
        ...
    """
    if not isinstance(rule, str):
        raise TypeError(f"explain() takes the name of a rule, such as 'slow-getitem', not {rule!r:.60}.")
    names = {cause.name: cause for cause in every_cause()}
    wanted = rule.strip().lower().replace("_", "-")
    if wanted in names:
        return Page(names[wanted])
    hint = formatting.did_you_mean(wanted, names, most=3, cutoff=0.4) or f" The rules are: {', '.join(names)}."
    raise ValueError(f"There is no rule named {rule!r}.{hint}")
