"""What is on the screen of one cell: its live panel, and its static result in an output of its own.

A panel that cannot be shown, fails or is closed never stops what it shows: one sentence says why, the result is there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

from IPython.display import display

from gpu_doctor import formatting, report
from gpu_doctor.notebook import panel_needs
from gpu_doctor.notebook.answer import Answer
from gpu_doctor.notebook.open_panels import opened

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from gpu_doctor.notebook.live_view import Dashboard


class Screen:
    """The panel and the result of one cell."""

    def __init__(self, shell: InteractiveShell, closing: Callable[[], object] = lambda: None) -> None:
        """`closing`: is called when the panel is closed because another one takes its place."""
        self._shell, self._closing = shell, closing
        self.panel: Dashboard | None = None
        """None where there is none, or none any more."""
        self.lost = ""
        """Why the panel is there no more, in one sentence for the static result."""
        self._result: Any = None

    def open(self, make: Callable[[], Dashboard]) -> None:
        """Displays the panel that `make` gives; where that cannot be, it is said at once."""
        if not hasattr(self._shell, "kernel"):
            return
        try:
            panel_needs.check()
            self.panel = make()
            opened(self.close_panel, getattr(self._shell, "parent_header", None) or {})
            self.panel.show()
        except Exception as error:
            self.panel = None
            with contextlib.suppress(Exception):  # a long run is not waited for in vain
                display(plainly(panel_needs.no_panel(error)))

    @property
    def hears_stop(self) -> bool:
        """The kernel has subshells: a click is heard while a cell runs."""
        return bool(getattr(getattr(self._shell, "kernel", None), "_supports_kernel_subshells", False))

    def act(self, what: Callable[[Dashboard], Any]) -> None:
        """Has the panel do something; one that fails is let go of, and the run goes on."""
        panel = self.panel
        if panel is None:
            return
        try:
            what(panel)
        except Exception as error:
            self.panel = None
            self.lost = f"The live panel stopped ({formatting.raised(error)}); the run is not affected."
            with contextlib.suppress(Exception):
                panel.stop()

    def end(self) -> None:
        """Nothing goes on any more: the last picture."""
        self.act(self._brought_to_its_end)

    def _brought_to_its_end(self, panel: Dashboard) -> None:
        """Why there is no last picture, too: a panel closed in the page or by `Widget.close_all()` hears no more."""
        panel.stop()
        panel.last()
        self.lost = panel.failure
        comm, manager = panel.view.comm, getattr(self._shell.kernel, "comm_manager", None)
        still_open = getattr(manager, "comms", None)
        if comm is None or (still_open is not None and comm.comm_id not in still_open):
            self.panel = None
            self.lost = "The live panel was closed while the cell ran; the run is not affected."

    def close_panel(self) -> None:
        """Takes the panel out of kernel and page; what it showed stays."""
        panel, self.panel = self.panel, None
        self._closing()
        if panel is not None:
            panel.close()

    def show_result(self, shown: Answer) -> None:
        """The static result, in an output of its own that is replaced when there is another one."""
        if self._result is None:
            self._result = display(shown, display_id=True)
        else:
            self._result.update(shown)


def plainly(sentence: str) -> Answer:
    """One sentence in the place of the result."""
    said = formatting.clean(f"{report.LABELS.product}: {sentence}", 600)
    return Answer(said, f'<div class="gpu-doctor-static">{escape(said)}</div>')
