"""Captures what code writes and displays for the panel, while the kernel still receives the page's messages.

IPython's own `capture_output` puts a bare display publisher in the place of the kernel's, and ipykernel tells the
publisher of every message that it handles, those on a subshell's thread included: on the bare one that fails
(`set_parent`), the message is lost, and with it a click on Stop. Ours answers with the kernel's where it has no answer.

What a run for real wrote is kept for the panel and the static result: it is started by a click, not by a cell, so its
output has no cell to appear under (JupyterLab 4.6 with ipykernel 7.4 drops it).
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.utils.capture import CapturedIO, capture_output

from gpu_doctor import formatting
from gpu_doctor.report import LABELS, heading
from gpu_doctor.report.panel import Output

MOST_OUTPUT: Final = 20_000
"""Characters of a run's output that are shown: the last ones."""
MOST_IMAGES: Final = 4
MOST_IMAGE_LETTERS: Final = 1_000_000
"""Of one picture, in base64."""
_ESCAPES: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
"""What colours text and moves the cursor in a terminal (ECMA-48, control sequences)."""


class Standing(CapturingDisplayPublisher):
    """Keeps what is displayed; all else it is asked for is answered by the publisher in whose place it stands."""

    behind: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)


class Captured(capture_output):
    """A context manager that gives what was written and displayed, as IPython's own does."""

    def __enter__(self) -> CapturedIO:
        found = super().__enter__()
        if self.shell is not None:
            standing: Any = self.shell.display_pub
            standing.__class__ = Standing
            standing.behind = self.save_display_pub
        return found


@dataclass(frozen=True)
class RealOutput:
    """Text and pictures of one run."""

    text: str = ""
    images: tuple[str, ...] = ()
    """Addresses with the picture in them."""

    def __bool__(self) -> bool:
        return bool(self.text.strip() or self.images)

    def shown(self) -> Output | None:
        """For the page; None for nothing."""
        return Output(self.text, self.images) if self else None

    def static(self) -> tuple[str, str]:
        """For the static result: text and HTML; '' for nothing."""
        if not self.text.strip():
            return "", ""
        style = "padding:8px 14px;font-size:12px;overflow-x:auto;background:transparent"
        title = heading(LABELS.output)
        head = f"<summary>{title}</summary>"
        body = f'<details open>{head}<pre style="{style}">{html.escape(self.text)}</pre></details>'
        return f"\n\n{title}\n{self.text}", f'<div class="gpu-doctor-static">{body}</div>'


def as_a_terminal_shows(text: str) -> str:
    """Text without colour codes; of a line that was written over, as progress bars do, what stood there last."""
    lines = _ESCAPES.sub("", text).replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


def kept(text: str, displayed: Sequence[Any]) -> RealOutput:
    """The end of what was printed, and what was displayed: pictures as such, the rest as plain text.

    Args:
        text: stdout, stderr and a traceback.
        displayed: IPython's captured outputs.
    """
    images: list[str] = []
    for one in displayed:
        data: Mapping[str, Any] = getattr(one, "data", None) or {}
        picture = data.get("image/png")
        if isinstance(picture, str) and len(images) < MOST_IMAGES and len(picture) <= MOST_IMAGE_LETTERS:
            images.append(f"data:image/png;base64,{picture.strip()}")
        elif "text/plain" in data:
            text += f"\n{data['text/plain']}"
    return RealOutput(formatting.clean(text[-MOST_OUTPUT:], MOST_OUTPUT + 1), tuple(images))
