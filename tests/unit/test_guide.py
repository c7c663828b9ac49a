"""CONTRIBUTING.md and docs/contributing: the paths exist, the lists are where they say, the glossary stays short."""

from __future__ import annotations

import re
from typing import Final

import pytest

from gpu_doctor.capture.frameworks import FRAMEWORKS
from gpu_doctor.capture.taps import TAPS
from gpu_doctor.diagnosis.rules import FAMILIES
from gpu_doctor.trials.knobs import KNOBS
from tests.support.repository import ROOT

CONTRIBUTING: Final = ROOT / "CONTRIBUTING.md"
FOLDER: Final = ROOT / "docs" / "contributing"
GUIDE: Final = "\n".join(page.read_text(encoding="utf-8") for page in (CONTRIBUTING, *sorted(FOLDER.glob("*.md"))))
MOST_LINES: Final = 80
MOST_WORDS: Final = 30
"""A glossary that nobody can hold in mind is read by nobody."""
# What the build makes, and what stands for a reader's own.
MADE: Final = re.compile(
    r"[<*]|^tests/artifacts|^docs/_build/|^docs/reference/rules/|^\.venv|^second_chances|PATH|^acme"
)


def paths() -> list[str]:
    """What stands between backquotes and looks like a file or a folder of the repository."""
    quoted = re.findall(r"`([^`\s]+)`", GUIDE)
    return sorted({one for one in quoted if "/" in one and re.fullmatch(r"[\w./*<>-]+", one) and not MADE.search(one)})


@pytest.mark.parametrize("path", paths())
def test_every_path_of_the_guide_exists(path: str) -> None:
    assert any((ROOT / start / path).exists() for start in ("", "gpu_doctor", "gpu_doctor/notebook")), path


def test_the_guide_names_paths() -> None:
    assert len(paths()) > 30


def test_contributing_is_one_screen_and_a_half() -> None:
    assert len(CONTRIBUTING.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


def test_the_glossary_has_each_word_once() -> None:
    rows = re.findall(r"^\| ([^|]+) \|", (FOLDER / "glossary.md").read_text(encoding="utf-8"), re.M)[1:]
    words = [word for row in rows for word in row.split(", ")]
    assert 20 < len(rows) <= MOST_WORDS
    assert len(words) == len(set(words))


@pytest.mark.parametrize(
    ("name", "shelf"),
    [("`KNOBS`", KNOBS), ("`FRAMEWORKS`", FRAMEWORKS), ("`TAPS`", TAPS), ("`MODULES`", FAMILIES)],
)
def test_the_lists_that_a_newcomer_adds_to_are_named(name: str, shelf: object) -> None:
    assert shelf
    assert name in (FOLDER / "adding.md").read_text(encoding="utf-8")
