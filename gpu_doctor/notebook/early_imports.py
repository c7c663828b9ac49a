"""Imports what the first panel needs while a person still writes the next cell: Bokeh and the widgets, never torch.

These imports, and the figures of the first panel, are most of what the first diagnosed cell would wait for. They are
made on a thread that `%load_ext` begins in a kernel and that ends by itself; a diagnosed cell waits for its end. It
shares the interpreter with an ordinary cell that runs meanwhile, once in a kernel.
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
        importlib.import_module("gpu_doctor.notebook.live_view").prepare()
