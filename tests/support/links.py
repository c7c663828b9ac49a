"""Writes what depends on the project's home into README.md and the notebooks: `make links`.

Badges, links to Colab and Binder, the install cell and links to the documentation follow from `[project.urls]` of
pyproject.toml. Until a home is set there the same places say in words how to open a notebook elsewhere.

README.md has one place for it, between two marks. A notebook has two cells, known by their ids and added where they are
missing. A link to a page of `docs/` leads to the site where that has an address, else to the file beside it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.support.home import BINDER, COLAB, Home, home
from tests.support.repository import ROOT

MARK: Final = "<!-- open -->"
OPEN_ID: Final = "open-elsewhere"
INSTALL_ID: Final = "install"
FIRST: Final = "notebooks/01_quickstart.ipynb"
_INSTALLS: Final = """\
# Installs gpu_doctor where it is missing.
from importlib import invalidate_caches, metadata, util

if util.find_spec("gpu_doctor"):
    print("gpu_doctor is installed: nothing to do.")
else:
    kept = f"torch=={metadata.version('torch')}" if util.find_spec("torch") else "torch"
    %pip install --quiet "FROM" "{kept}"
    invalidate_caches()
    done = util.find_spec("gpu_doctor") is not None
    print("gpu_doctor was installed, and torch left as it was." if done else "gpu_doctor is missing: see above.")"""
_SAYS_HOW: Final = """\
# Says how to install gpu_doctor where it is missing.
from importlib import util

if util.find_spec("gpu_doctor"):
    print("gpu_doctor is installed: nothing to do.")
else:
    print("gpu_doctor is missing. Upload a zip of its repository beside this notebook, then run this in a cell:")
    print("%pip install --quiet ./NAME_OF_THE.zip")"""
_DOCS: Final = re.compile(r"\]\((?:\.\./|https://[^()\s]*?/|)docs/([\w/-]+)\.(?:md|html)(#[\w-]+)?\)")


def ways(at: Home, path: str, name: str) -> str:
    """How to open a notebook elsewhere: two badges, or in words, which call it by a name."""
    if at.repository:
        colab = f"[![Open in Colab]({COLAB}/assets/colab-badge.svg)]({at.colab(path)})"
        return f"{colab} [![Open on Binder]({BINDER}/badge_logo.svg)]({at.binder(path)})"
    return (
        f"**Open {name} elsewhere.** Colab: upload `{path}` (*File, Upload notebook*), and a zip of the repository "
        f"beside it (*Files*). Binder, once the repository is on GitHub as OWNER/NAME: `{at.binder(path)}`."
    )


def install_cell(at: Home) -> str:
    """Python that installs the package where it is missing, never another torch, and says what it did."""
    return (_INSTALLS if at.repository else _SAYS_HOW).replace("FROM", at.install)


def with_links(text: str, at: Home, up: str = "") -> str:
    """A text whose links to pages of `docs/` lead to the site, if it has an address, else to the pages' files.

    Args:
        text: Markdown. at: the home. up: the way from the text's folder to the root.
    """

    def led(link: re.Match[str]) -> str:
        page, anchor = link[1], link[2] or ""
        if not (ROOT / "docs" / f"{page}.md").is_file():
            return link[0]
        return (
            f"]({at.documentation}/docs/{page}.html{anchor})" if at.documentation else f"]({up}docs/{page}.md{anchor})"
        )

    return _DOCS.sub(led, text)


def readme(text: str, at: Home) -> str:
    """README.md as it should be.

    Raises:
        ValueError: if it does not have both marks.
    """
    parts = text.split(MARK)
    if len(parts) != 3:
        raise ValueError(f"README.md needs {MARK} twice: what stands between is written by make links.")
    said = ways(at, FIRST, "the quickstart")
    if at.documentation:
        said += f" · [Documentation]({at.documentation})"
    if at.repository:
        said += f'\n\n```\npip install "{at.install}"\n```'
    return with_links(f"{parts[0]}{MARK}\n{said}\n{MARK}{parts[2]}", at)


def notebook(text: str, at: Home, path: str) -> str:
    """A notebook as it should be, as nbformat would write it."""
    found: dict[str, Any] = json.loads(text)
    cells: list[dict[str, Any]] = found["cells"]
    for cell in cells:
        if cell["cell_type"] == "markdown":
            cell["source"] = _lines(with_links("".join(cell["source"]), at, "../"))
    first_code = next((place for place, cell in enumerate(cells) if cell["cell_type"] == "code"), len(cells))
    _put(cells, INSTALL_ID, "code", install_cell(at), first_code)
    _put(cells, OPEN_ID, "markdown", ways(at, path, "this notebook"), min(1, len(cells)))
    return json.dumps(found, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def _put(cells: list[dict[str, Any]], identity: str, kind: str, text: str, place: int) -> None:
    """Gives the cell of an id its text; a new one goes to its place.

    Results stay: where the package is installed, the install cell says the same with every home.
    """
    cell = next((one for one in cells if one.get("id") == identity), None)
    if cell is None:
        results: dict[str, Any] = {"outputs": [], "execution_count": None} if kind == "code" else {}
        cell = {"cell_type": kind, "id": identity, "metadata": {}, "source": [], **results}
        cells.insert(place, cell)
    cell["source"] = _lines(text)


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def due(root: Path = ROOT) -> dict[Path, str]:
    """The files that differ from what follows from the home, each with what it should be."""
    at = home(root)
    written = {root / "README.md": readme((root / "README.md").read_text(encoding="utf-8"), at)}
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        written[path] = notebook(path.read_text(encoding="utf-8"), at, f"notebooks/{path.name}")
    return {path: text for path, text in written.items() if path.read_text(encoding="utf-8") != text}


def main(words: Sequence[str]) -> int:
    """Writes them; with --check only says which would be written, and fails if there are any."""
    changed = due()
    for path, text in changed.items():
        print(path.relative_to(ROOT))
        if "--check" not in words:
            path.write_text(text, encoding="utf-8")
    return int(bool(changed) and "--check" in words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
