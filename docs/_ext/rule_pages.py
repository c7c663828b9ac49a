"""A page for each cause: its text, a program that has the trouble, and what curing it gave.

Written below `docs/reference/rules/` before Sphinx reads its sources; the folder is not in git.
"""

from __future__ import annotations

import re
import shutil
from typing import Final

from docs._ext import markdown, pairs
from gpu_doctor.diagnosis.rules import CAUSES
from gpu_doctor.diagnosis.rules.page import paragraphs
from gpu_doctor.diagnosis.rules.rule import Cause
from tests.support.repository import ROOT

FOLDER: Final = ROOT / "docs" / "reference" / "rules"
_NAMES: Final = re.compile(r"(?<![\w`/-])(" + "|".join(one.name for one in CAUSES if "-" in one.name) + r")(?![\w`-])")
NO_PROGRAM: Final = (
    "This repository has no program with this trouble that runs on any machine: its tests know it from recordings."
)


def write() -> None:
    """Writes all of them anew."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    for rule in CAUSES:
        (FOLDER / f"{rule.name}.md").write_text(page(rule), encoding="utf-8")


def page(rule: Cause) -> str:
    """One page."""
    blocks = [f"# {rule.name}", f"*Family: {rule.family}*"]
    for part in paragraphs(rule.page):
        blocks += [f"## {part.title}"] if part.title else []
        language = "console" if part.text.startswith("$ ") else "python"
        blocks.append(markdown.code(part.text, language) if part.code else _linked(markdown.prose(part.text), rule))
    return "\n\n".join([*blocks, "## Sick and cured", *_pair(rule), *_unseen(rule)]) + "\n"


def _linked(text: str, of: Cause) -> str:
    """The names of other rules lead to their pages."""
    return _NAMES.sub(lambda found: found[0] if found[1] == of.name else f"[{found[1]}]({found[1]}.md)", text)


def _pair(rule: Cause) -> list[str]:
    pair = pairs.shown(rule.name)
    if pair is None:
        return [NO_PROGRAM]
    return ["The loop:", markdown.code(pair.source, "python"), "The cure:", pair.change, *pair.gains]


def _unseen(rule: Cause) -> list[str]:
    """Programs that were written by people who had not read this page."""
    found = pairs.unseen(rule.name)
    if not found:
        return []
    blocks = ["## Programs of others", "Each gain was timed by the program's author, on a CPU, without gpu_doctor."]
    for one in found:
        gain = "not timed" if one.gain is None else f"{one.gain:.2f}x"
        blocks += [
            f"**{markdown.prose(one.name)}: {gain}**",
            markdown.prose(f"{one.why} Cure: {one.cure}"),
            f"<details><summary>The change</summary>\n\n{one.change}\n\n</details>",
        ]
    return blocks
