"""tools.home: what `[project.urls]` writes into README.md and the notebooks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.repository import ROOT
from tests.support.stored_notebooks import INSTALL_ID
from tools import home as tool
from tools.home import Home, home

SET = Home("acme/doctor", "https://acme.example/docs")
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_files_are_those_of_the_home_that_is_set() -> None:
    at = home((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert tool.readme(README, at) == README
    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        assert tool.notebook(text, f"notebooks/{path.name}", at) == text, f"{path.name}: run python -m tools.home"


def test_badges_come_once_and_go_again() -> None:
    shown = tool.readme(README, SET)
    assert shown.count("[![") == 4 and "acme/doctor" in shown and "https://acme.example/docs" in shown
    assert tool.readme(shown, SET) == shown
    assert tool.readme(shown, Home()) == tool.readme(README, Home())


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_links_to_itself_and_installs_the_repository(path: Path) -> None:
    import nbformat

    place, text = f"notebooks/{path.name}", path.read_text(encoding="utf-8")
    shown = tool.notebook(text, place, SET)
    cells = {cell.id: cell.source for cell in nbformat.reads(shown, as_version=4).cells}
    assert f"github/acme/doctor/blob/main/{place})" in cells[tool.OPEN_ID]
    assert "%pip install --quiet git+https://github.com/acme/doctor" in cells[INSTALL_ID]
    assert tool.notebook(shown, place, Home()) == tool.notebook(text, place, Home())


@pytest.mark.parametrize(
    ("urls", "repository"),
    [
        ("", ""),
        ('Repository = "https://github.com/acme/doctor"', "acme/doctor"),
        ('Repository = "https://github.com/acme/doctor.git"', "acme/doctor"),
    ],
)
def test_an_address_is_read(urls: str, repository: str) -> None:
    assert home(f"[project.urls]\n{urls}").repository == repository


@pytest.mark.parametrize("urls", ['Repository = "https://elsewhere.example/a/b"', 'Documentation = "http://a.example"'])
def test_what_is_no_address_is_refused(urls: str) -> None:
    with pytest.raises(ValueError, match=r"\[project\.urls\]"):
        home(f"[project.urls]\n{urls}")
