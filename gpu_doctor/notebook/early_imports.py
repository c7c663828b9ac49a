"""Imports Bokeh and the widgets for the first panel while the user still writes the next cell; it never imports torch.

These imports and the figures of the first panel are most of what the first diagnosed cell would wait for. A thread
that `%load_ext` starts, once per kernel, makes them and ends by itself; a diagnosed cell waits until it has ended. An
ordinary cell that runs in the meantime shares the interpreter with the thread.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from typing import Any

_threads: list[threading.Thread] = []


def begin(shell: Any) -> None:
    """Starts the imports on a thread, if the shell has a kernel, so that a front end can show a panel."""
    if hasattr(shell, "kernel") and not _threads:
        thread = threading.Thread(target=_import, name="gpu_doctor-imports", daemon=True)
        _threads.append(thread)
        thread.start()


def finish() -> None:
    """Waits until the imports are done."""
    for thread in _threads:
        thread.join()


def _import() -> None:
    with contextlib.suppress(Exception):  # the first panel reports what is missing
        importlib.import_module("gpu_doctor.notebook.live_view").prepare()
