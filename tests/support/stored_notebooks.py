"""What a notebook is as it is committed: run from its first cell to its last, and readable without a kernel.

GitHub, the documentation and whoever only reads see what the cells gave; what needs a live kernel, or tells of the
machine that ran them, is left out.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

MOST_BYTES: Final = 1_000_000
"""A clone carries every version of a file for ever, and GitHub shows no notebook that is much larger."""
VIEW: Final = "application/vnd.jupyter.widget-view+json"
"""The live panel: nothing without its kernel."""
RESULT: Final = "gpu-doctor-static"
"""The class of what stays in a saved notebook below a doctored cell."""
INSTALL_ID: Final = "install"
"""The id of the cell that installs the package where it is missing."""
PLACEHOLDER: Final = "OWNER/NAME"
"""Stands for the repository in an address that nobody has filled in."""
_PICTURE: Final = re.compile(r"data:image/[\w+]+;base64,[\w+/=]+")
_PATH: Final = re.compile(r"(?<![\w.~<])/(?:home|root|tmp|usr|opt|work|mnt|srv|var|private|Users)/[^\s<>\"']*")
"""Folders that are named after a person or a machine, or gone by now."""


def complaints(text: str) -> list[str]:
    """What is wrong with the text of a notebook's file, one sentence each."""
    notebook: dict[str, Any] = json.loads(text)
    size = len(text.encode())
    found = []
    if size > MOST_BYTES:
        found.append(f"It has {size / 1000:.0f} kB; {MOST_BYTES // 1000} are allowed.")
    if "widgets" in notebook["metadata"]:
        found.append("It holds the state of widgets.")
    if PLACEHOLDER in text:
        found.append(f"It shows a placeholder: {PLACEHOLDER}.")
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(code, 1):
        found += [f"Code cell {number} {what}." for what in _troubles(cell)]
    return found


def doctored(source: str) -> bool:
    """Whether a code cell shows a panel: it is watched, or a recording is played."""
    return source.startswith(("%%gpudoctor", "gpu_doctor.replay("))


def _troubles(cell: dict[str, Any]) -> list[str]:
    """What is wrong with a code cell."""
    outputs: list[dict[str, Any]] = cell["outputs"]
    found = [] if cell["execution_count"] is not None else ["was not run"]
    found += [f"ended with {one['ename']}: {one['evalue']}" for one in outputs if one["output_type"] == "error"]
    found += [f"wrote to stderr: {_joined(one['text']).strip()}" for one in outputs if one.get("name") == "stderr"]
    if any(VIEW in one.get("data", {}) for one in outputs):
        found.append("holds a live widget")
    if doctored("".join(cell["source"])) and not any(RESULT in _said(one) for one in outputs):
        found.append("has no result of gpu_doctor below it")
    found += [
        f"names a place of the machine that ran it: {path}" for one in outputs for path in _PATH.findall(_said(one))
    ]
    return found


def _said(output: dict[str, Any]) -> str:
    """All text of an output, without the pictures in it."""
    texts = [
        output.get("text", ""),
        *(text for kind, text in output.get("data", {}).items() if kind.startswith("text/")),
    ]
    return _PICTURE.sub("", "\n".join(map(_joined, texts)))


def _joined(text: str | list[str]) -> str:
    """nbformat divides texts into lines in a file."""
    return text if isinstance(text, str) else "".join(text)
