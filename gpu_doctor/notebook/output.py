"""Captures what code writes and displays, while the kernel still receives the page's messages.

IPython's own `capture_output` replaces the kernel's display publisher by a plain one. ipykernel calls the publisher's
`set_parent` for every message that it handles, also on a subshell's thread. The plain publisher lacks that method, so
the message is lost, and with it a click on Stop. Our publisher delegates missing attributes to the kernel's.
"""

from __future__ import annotations

from typing import Any

from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.utils.capture import CapturedIO, capture_output


class DelegatingPublisher(CapturingDisplayPublisher):
    """A publisher that captures what is displayed and delegates everything else to the original publisher."""

    original: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)


class Captured(capture_output):
    """A context manager that captures what was written and displayed, like IPython's own."""

    def __enter__(self) -> CapturedIO:
        found = super().__enter__()
        if self.shell is not None:
            publisher: Any = self.shell.display_pub
            publisher.__class__ = DelegatingPublisher
            publisher.original = self.save_display_pub
        return found
