"""Captures what code writes and displays for the panel, while the kernel still receives the page's messages.

IPython's own `capture_output` puts a bare display publisher in the place of the kernel's, and ipykernel tells the
publisher of every message that it handles, those on a subshell's thread included: on the bare one that fails
(`set_parent`), the message is lost, and with it a click on Stop. Ours answers with the kernel's where it has no answer.
"""

from __future__ import annotations

from typing import Any

from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.utils.capture import CapturedIO, capture_output


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
