"""The screen of one cell: its live panel, and its static result in a separate output.

A panel that cannot be shown, fails or is closed never stops the run. One sentence says why, and the result still
appears.
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
        """Starts with nothing on the screen.

        Args:
            shell: shell of the notebook.
            closing: called when the panel is closed because another panel replaces it.
        """
        self._shell, self._closing = shell, closing
        self.panel: Dashboard | None = None
        """Panel of the cell; None if there is none or it is gone."""
        self.lost = ""
        """Reason why the panel is gone, in one sentence for the static result."""
        self._result: Any = None

    def open(self, make: Callable[[], Dashboard]) -> None:
        """Displays the panel that `make` returns; if that fails, a sentence says so at once."""
        if not hasattr(self._shell, "kernel"):
            return
        try:
            panel_needs.check()
            self.panel = make()
            opened(self.close_panel, getattr(self._shell, "parent_header", None) or {})
            self.panel.show()
        except Exception as error:
            self.panel = None
            with contextlib.suppress(Exception):  # nobody should wait for a panel during a long run
                display(plainly(panel_needs.no_panel(error)))

    @property
    def receives_stop(self) -> bool:
        """True if the kernel has subshells, so that a click on Stop arrives while a cell runs."""
        return bool(getattr(getattr(self._shell, "kernel", None), "_supports_kernel_subshells", False))

    def act(self, what: Callable[[Dashboard], Any]) -> None:
        """Calls a function on the panel, if there is one; a panel that fails is dropped and the run goes on."""
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
        """Draws the panel's final state, because nothing runs any more."""
        self.act(self._finish)

    def _finish(self, panel: Dashboard) -> None:
        """Stops a panel and sends its final state.

        A panel that was closed in the page or by `Widget.close_all()` no longer receives it; `lost` then says so.
        """
        panel.stop()
        panel.last()
        self.lost = panel.failure
        comm, manager = panel.view.comm, getattr(self._shell.kernel, "comm_manager", None)
        still_open = getattr(manager, "comms", None)
        if comm is None or (still_open is not None and comm.comm_id not in still_open):
            self.panel = None
            self.lost = "The live panel was closed while the cell ran; the run is not affected."

    def close_panel(self) -> None:
        """Removes the panel from kernel and page; its case and its result stay."""
        panel, self.panel = self.panel, None
        self._closing()
        if panel is not None:
            panel.close()

    def show_result(self, shown: Answer) -> None:
        """Shows the static result in a separate output, which the next result replaces."""
        if self._result is None:
            self._result = display(shown, display_id=True)
        else:
            self._result.update(shown)


def plainly(sentence: str) -> Answer:
    """Returns one sentence as a result."""
    text = formatting.clean(f"{report.LABELS.product}: {sentence}", 600)
    return Answer(text, f'<div class="gpu-doctor-static">{escape(text)}</div>')
