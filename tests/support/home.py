"""The project's home: `[project.urls]` of pyproject.toml, the one place where it is written by hand."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

BRANCH: Final = "main"
COLAB: Final = "https://colab.research.google.com"
BINDER: Final = "https://mybinder.org"
_REPOSITORY: Final = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?/?")


@dataclass(frozen=True)
class Home:
    """Where the project lives; each is empty until it is set."""

    repository: str = ""
    """`OWNER/NAME` on GitHub, which both Colab and Binder open."""
    documentation: str = ""
    """The address of the built site, without a slash at its end."""

    @property
    def install(self) -> str:
        """What pip is given."""
        return f"jupyter-gpu-doctor @ git+https://github.com/{self.repository}"

    def colab(self, path: str) -> str:
        """A notebook of the repository, opened in Colab."""
        return f"{COLAB}/github/{self.repository or 'OWNER/NAME'}/blob/{BRANCH}/{path}"

    def binder(self, path: str) -> str:
        """The same on Binder, in JupyterLab."""
        return f"{BINDER}/v2/gh/{self.repository or 'OWNER/NAME'}/{BRANCH}?urlpath=lab/tree/{path}"


def home(root: Path) -> Home:
    """What the pyproject.toml of a checkout says.

    Raises:
        ValueError: if it names something that is no address of a repository on GitHub, or of a site.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    urls: dict[str, str] = project.get("urls", {})
    repository, documentation = urls.get("Repository", ""), urls.get("Documentation", "")
    found = _REPOSITORY.fullmatch(repository)
    if repository and not found:
        raise ValueError(f"[project.urls] Repository is {repository!r}; write https://github.com/OWNER/NAME.")
    if documentation and not documentation.startswith("https://"):
        raise ValueError(f"[project.urls] Documentation is {documentation!r}; write an address with https://.")
    return Home(found[1] if found else "", documentation.rstrip("/"))
