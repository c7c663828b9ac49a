"""What depends on the project's home follows from `[project.urls]` alone, in README.md and in every notebook."""

from __future__ import annotations

import ast
import json
import re
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support import links
from tests.support.home import Home, home
from tests.support.repository import ROOT

HOME: Final = Home("someone/doctor", "https://someone.example/doctor")
OTHER: Final = Home("others/doctor", "https://others.example")
URLS: Final = '[project.urls]\nRepository = "https://github.com/someone/doctor"\nDocumentation = "https://someone.example/doctor/"\n'
COURSE: Final = {
    "cells": [
        {"cell_type": "markdown", "id": "a", "metadata": {}, "source": ["# Title"]},
        {"cell_type": "markdown", "id": "b", "metadata": {}, "source": ["[panel](../docs/reference/panel.md#x)"]},
        {"cell_type": "code", "id": "c", "metadata": {}, "source": ["1"], "outputs": [], "execution_count": None},
    ],
    "metadata": {},
    "nbformat": 4,
    "nbformat_minor": 5,
}


def cells(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(text)["cells"]
    return found


def source(text: str, identity: str) -> str:
    return "".join(next(one for one in cells(text) if one["id"] == identity)["source"])


def written(at: Home, text: str = json.dumps(COURSE)) -> str:
    return links.notebook(text, at, "notebooks/02_feeding.ipynb")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """What `make links` reads and writes of this checkout."""
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks", ignore=shutil.ignore_patterns("images"))
    return tmp_path


def test_the_checkout_is_as_its_home_says() -> None:
    assert [path.name for path in links.due()] == [], "run: make links"


def test_a_home_is_written_everywhere_and_taken_back_again(copy: Path) -> None:
    project = (copy / "pyproject.toml").read_text(encoding="utf-8")
    (copy / "pyproject.toml").write_text(re.sub(r"\[project\.urls\]\n", URLS, project), encoding="utf-8")
    assert home(copy) == HOME
    due = links.due(copy)
    assert set(due) == {copy / "README.md", *(copy / "notebooks").glob("*.ipynb")}
    for path, text in due.items():
        assert "https://colab.research.google.com/github/someone/doctor/blob/main/notebooks/" in text
        assert "https://mybinder.org/v2/gh/someone/doctor/main?urlpath=lab/tree/notebooks/" in text
        assert "OWNER/NAME" not in text
        path.write_text(text, encoding="utf-8")
    assert links.due(copy) == {}
    (copy / "pyproject.toml").write_text(project, encoding="utf-8")
    for path, text in links.due(copy).items():
        assert text == (ROOT / path.relative_to(copy)).read_text(encoding="utf-8")


@pytest.mark.parametrize("at", [Home(), HOME, OTHER])
def test_a_new_notebook_gets_both_cells_once_and_in_their_places(at: Home) -> None:
    text = written(at)
    assert [one["id"] for one in cells(text)] == ["a", "open-elsewhere", "b", "install", "c"]
    assert written(at, text) == text
    assert written(at, written(HOME, text)) == text


def test_without_a_home_there_is_no_badge_and_words_say_how_to_open_it() -> None:
    said = source(written(Home()), "open-elsewhere")
    assert "](" not in said
    assert "`https://mybinder.org/v2/gh/OWNER/NAME/main?urlpath=lab/tree/notebooks/02_feeding.ipynb`" in said
    assert "Upload notebook" in said


def test_a_link_to_the_documentation_leads_to_the_site_once_it_has_an_address() -> None:
    assert source(written(Home()), "b") == "[panel](../docs/reference/panel.md#x)"
    there = written(HOME)
    assert source(there, "b") == "[panel](https://someone.example/doctor/docs/reference/panel.html#x)"
    assert source(written(OTHER, there), "b") == "[panel](https://others.example/docs/reference/panel.html#x)"
    foreign = "[torch](https://pytorch.org/docs/stable/data.html)"
    assert links.with_links(foreign, HOME) == foreign


class Pip:
    """A notebook's `%pip`, and what it was asked for."""

    def __init__(self, works: bool) -> None:
        self.works, self.asked = works, ""

    def run(self, text: str, monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
        from importlib import metadata, util

        seen = iter([there, True, self.works])  # gpu_doctor, torch, gpu_doctor again
        monkeypatch.setattr(util, "find_spec", lambda name: object() if next(seen) else None)
        monkeypatch.setattr(metadata, "version", lambda name: "2.9.0+cu126")
        plain = re.sub(r"(?m)^    %pip install (.+)", lambda found: f"    pip(f{found[1]!r})", text)
        ast.parse(plain)
        exec(plain, {"pip": self.install})

    def install(self, words: str) -> None:
        self.asked = words


def test_the_install_cell_leaves_torch_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = links.install_cell(HOME)
    Pip(True).run(text, monkeypatch, there=True)
    assert capsys.readouterr().out == "gpu_doctor is installed: nothing to do.\n"
    pip = Pip(True)
    pip.run(text, monkeypatch, there=False)
    assert pip.asked == '--quiet "jupyter-gpu-doctor @ git+https://github.com/someone/doctor" "torch==2.9.0+cu126"'
    assert capsys.readouterr().out == "gpu_doctor was installed, and torch left as it was.\n"
    Pip(False).run(text, monkeypatch, there=False)
    assert "is missing" in capsys.readouterr().out


def test_without_a_home_the_install_cell_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Pip(False).run(links.install_cell(Home()), monkeypatch, there=False)
    assert "%pip install --quiet ./NAME_OF_THE.zip" in capsys.readouterr().out


def test_a_changed_install_cell_keeps_its_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the package is installed it is the same with every home, and the notebook need not run again."""
    found = json.loads(written(HOME))
    next(one for one in found["cells"] if one["id"] == "install")["outputs"] = [{"output_type": "stream"}]
    changed = next(one for one in cells(written(OTHER, json.dumps(found))) if one["id"] == "install")
    assert changed["outputs"] and "".join(changed["source"]) == links.install_cell(OTHER)
    for at in (Home(), HOME, OTHER):
        Pip(False).run(links.install_cell(at), monkeypatch, there=True)
    assert capsys.readouterr().out == 3 * "gpu_doctor is installed: nothing to do.\n"


@pytest.mark.parametrize(
    "line", ['Repository = "https://gitlab.com/someone/doctor"', 'Documentation = "someone.example"']
)
def test_an_address_that_cannot_be_used_is_said(tmp_path: Path, line: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[project]\n[project.urls]\n{line}\n")
    with pytest.raises(ValueError, match=r"\[project.urls\]"):
        home(tmp_path)


def test_a_readme_without_its_marks_is_said() -> None:
    with pytest.raises(ValueError, match="twice"):
        links.readme("# gpu_doctor", Home())
