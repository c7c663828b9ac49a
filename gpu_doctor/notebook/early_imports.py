"""Imports what the first panel needs while a person still writes the next cell: Bokeh and the widgets, never torch.

These imports are most of what the first diagnosed cell would wait for. They run on a thread of their own, begun by
`%load_ext` in a kernel and ended with the imports; a diagnosed cell waits for it before it begins.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from typing import Any

_threads: list[threading.Thread] = []


def begin(shell: Any) -> None:
    """Begins the imports, where a front end can show a panel."""
    if hasattr(shell, "kernel") and not _threads:
        thread = threading.Thread(target=_imported, name="gpu_doctor-imports", daemon=True)
        _threads.append(thread)
        thread.start()


def finish() -> None:
    """Waits until they are done."""
    for thread in _threads:
        thread.join()


def _imported() -> None:
    with contextlib.suppress(Exception):  # whoever needs it says what is lacking
        importlib.import_module("gpu_doctor.notebook.live_view")
