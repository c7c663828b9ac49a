"""Writes the project's addresses into README.md and the notebooks: `python -m tools.home`.

`[project.urls]` of pyproject.toml is the one place where they are written by hand. With a `Repository` on GitHub,
README.md gets its badges, each notebook links to itself in Colab and on Binder, and its install cell names the
repository. Without one, all of them say how to install from a checkout.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Any, Final

import nbformat

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from tests.support.repository import ROOT
from tests.support.stored_notebooks import INSTALL_ID

OPEN_ID: Final = "open-elsewhere"
"""The id of the cell that says where else a notebook can be opened."""
BRANCH: Final = "main"
_REPOSITORY: Final = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?/?")
_BADGES: Final = re.compile(r"(?<=\n\n)(?:\[!\[[^\n]+\n)+\n")
"""Paragraphs of README.md that consist of linked pictures."""

_UPLOADED: Final = """\
# Says how to install gpu_doctor where it is missing.
from importlib import util

if util.find_spec("gpu_doctor"):
    print("gpu_doctor is installed.")
else:
    print("gpu_doctor is missing. Upload a zip of its repository beside this notebook, then run this in a cell:")
    print("%pip install --quiet ./NAME_OF_THE.zip")"""
_CLONED: Final = """\
# Installs gpu_doctor where it is missing.
from importlib import util

if util.find_spec("gpu_doctor"):
    print("gpu_doctor is installed.")
else:
    %pip install --quiet {address}"""


@dataclass(frozen=True)
class Home:
    """Where the project lives on GitHub, and where its documentation is read."""

    repository: str = ""
    """`OWNER/NAME`; empty until it is set."""
    documentation: str = ""
    """The address of the built site; empty until it is set."""

    def colab(self, path: str) -> str:
        """Returns the address that opens a notebook of the repository in Colab."""
        return f"https://colab.research.google.com/github/{self.repository}/blob/{BRANCH}/{path}"

    def binder(self, path: str) -> str:
        """Returns the address that opens a notebook of the repository in Binder's JupyterLab."""
        return f"https://mybinder.org/v2/gh/{self.repository}/{BRANCH}?urlpath=lab/tree/{path}"


def home(pyproject: str) -> Home:
    """Reads `[project.urls]`.

    Args:
        pyproject: the text of a pyproject.toml.

    Raises:
        ValueError: if `Repository` is no repository on GitHub, or `Documentation` no https address.
    """
    urls: dict[str, str] = tomllib.loads(pyproject)["project"].get("urls", {})
    repository, documentation = urls.get("Repository", ""), urls.get("Documentation", "")
    found = _REPOSITORY.fullmatch(repository)
    if repository and not found:
        raise ValueError(f"[project.urls] Repository is {repository!r}: write https://github.com/OWNER/NAME.")
    if documentation and not documentation.startswith("https://"):
        raise ValueError(f"[project.urls] Documentation is {documentation!r}: write an address with https://.")
    return Home(found[1] if found else "", documentation)


def readme(text: str, at: Home) -> str:
    """Returns README.md with the badges of a home below its title, and no others."""
    text = _BADGES.sub("", text, count=1)
    badges = []
    if at.repository:
        start, actions = (
            "notebooks/01_quickstart.ipynb",
            f"https://github.com/{at.repository}/actions/workflows/test.yml",
        )
        badges += [
            f"[![tests]({actions}/badge.svg?branch={BRANCH})]({actions})",
            f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({at.colab(start)})",
            f"[![Open on Binder](https://mybinder.org/badge_logo.svg)]({at.binder(start)})",
        ]
    if at.documentation:
        badges.append(f"[![documentation](https://img.shields.io/badge/docs-read-blue)]({at.documentation})")
    title, _, rest = text.partition("\n\n")
    return "\n\n".join([title, *(["\n".join(badges)] if badges else []), rest])


def notebook(text: str, path: str, at: Home) -> str:
    """Returns a notebook's file with the links of a home, and an install cell that fits them.

    Args:
        text: the file's text. path: where it lies in the repository, such as `notebooks/01_quickstart.ipynb`. at: the
            home.
    """
    content: Any = nbformat.reads(text, as_version=4)
    cells = {cell.id: cell for cell in content.cells}
    if at.repository:
        links = f"[Colab]({at.colab(path)}) · [Binder]({at.binder(path)})"
        install = _CLONED.format(address=f"git+https://github.com/{at.repository}")
    else:
        links = (
            f"Colab: upload `{path}` (*File, Upload notebook*), and a zip of the repository beside it (*Files*). "
            f"Binder: give https://mybinder.org the address of the repository, and `{path}` as the file."
        )
        install = _UPLOADED
    cells[OPEN_ID].source = f"**Open this notebook elsewhere.** {links}"
    cells[INSTALL_ID].source = install
    return f"{str(nbformat.writes(content)).rstrip()}\n"


def main() -> int:
    """Writes every file that the addresses stand in, and says which of them changed."""
    at = home((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for path in (ROOT / "README.md", *sorted((ROOT / "notebooks").glob("*.ipynb"))):
        text = path.read_text(encoding="utf-8")
        place = path.relative_to(ROOT).as_posix()
        written = readme(text, at) if path.suffix == ".md" else notebook(text, place, at)
        if written != text:
            path.write_text(written, encoding="utf-8")
            print(f"{place}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
