"""CONTRIBUTING.md names what there is: its paths exist, its lists are where it says, its glossary stays short."""

from __future__ import annotations

import re
from typing import Final

import pytest

from gpu_doctor.capture.frameworks import FRAMEWORKS
from gpu_doctor.capture.taps import TAPS
from gpu_doctor.diagnosis.rules import FAMILIES
from gpu_doctor.trials.knobs import KNOBS
from tests.support.repository import ROOT

GUIDE: Final = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MOST_WORDS: Final = 40
"""A glossary that nobody can hold in mind is read by nobody."""
# What the build makes, and what stands for a reader's own.
MADE: Final = re.compile(
    r"[<*]|^tests/artifacts/|^docs/_build/|^docs/reference/rules/|^\.venv|^second_chances|PATH|^acme"
)


def paths() -> list[str]:
    """What stands between backquotes and looks like a file or a folder of the repository."""
    quoted = re.findall(r"`([^`\s]+)`", GUIDE)
    return sorted({one for one in quoted if "/" in one and re.fullmatch(r"[\w./*<>-]+", one) and not MADE.search(one)})


def section(title: str) -> str:
    """The text of one section of the guide."""
    return GUIDE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("path", paths())
def test_every_path_of_the_guide_exists(path: str) -> None:
    assert any((ROOT / start / path).exists() for start in ("", "gpu_doctor", "gpu_doctor/capture")), path


def test_the_guide_names_paths() -> None:
    assert len(paths()) > 30


def test_the_glossary_is_short() -> None:
    words = [word for bold in re.findall(r"\*\*(.+?)\*\*", section("Words")) for word in bold.split(", ")]
    assert 20 < len(words) <= MOST_WORDS
    assert len(words) == len(set(words))


@pytest.mark.parametrize(
    ("name", "shelf"),
    [("`KNOBS`", KNOBS), ("`FRAMEWORKS`", FRAMEWORKS), ("`TAPS`", TAPS), ("`MODULES`", FAMILIES)],
)
def test_the_lists_that_a_newcomer_adds_to_are_named(name: str, shelf: object) -> None:
    assert shelf
    assert name in section("To add")
