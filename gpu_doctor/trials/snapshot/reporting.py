"""Puts back what a cell reports through: loggers and their handlers, filters of warnings, print options, figures.

A handler that every run of a cell adds would write each later line once more. Nothing that was there before is closed.
"""

from __future__ import annotations

import logging
import logging.handlers
import sys
import warnings
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import torch

from gpu_doctor.trials.snapshot.parts import is_users
from gpu_doctor.trials.snapshot.switches import Switch, attribute
from gpu_doctor.trials.snapshot.undo import Undo

_CAPTURING: Final = getattr(logging, "_showwarning", None)
"""What shows warnings while `logging.captureWarnings` is on."""


def reporting_undos() -> list[tuple[str, Undo]]:
    """What belongs to the process and to no name, of what a cell reports through."""
    return [
        ("loggers", _loggers_undo()),
        ("warning filters", _warnings_undo()),
        ("figures", _figures_undo()),
        *((one.label, one.undo()) for one in _switches()),
    ]


def _loggers_undo() -> Undo:
    """Loggers and handlers that there are keep what they had; those that the cell makes lose what it gave them.

    What a library's own loggers get when it is imported stays: it is not imported a second time.
    """
    kept = [(logger, _settings_of(logger), list(logger.handlers), list(logger.filters)) for logger in _loggers()]
    known = {id(logger) for logger, *_ in kept}
    alive = _handlers()
    hung = {id(one): one for _, _, handlers, _ in kept for one in handlers}
    handlers = [(one, one.level, one.formatter, list(one.filters)) for one in hung.values()]
    buffers = [one for one in hung.values() if isinstance(one, logging.handlers.BufferingHandler)]
    waiting = [(one, one.buffer, list(one.buffer)) for one in buffers]

    def undo() -> None:
        for logger, settings, attached, filters in kept:
            _hang(logger, settings, attached, filters, alive)
        for logger in _loggers():
            if id(logger) not in known and not _is_librarys(logger.name):
                _hang(logger, (logging.NOTSET, True, False), [], [], alive)
        for handler, level, formatter, filters in handlers:
            handler.setLevel(level)
            handler.setFormatter(formatter)
            handler.filters[:] = filters
        for one, buffer, records in waiting:
            one.buffer = buffer
            buffer[:] = records

    return undo


def _loggers() -> Iterator[logging.Logger]:
    yield logging.root
    yield from (one for one in list(logging.root.manager.loggerDict.values()) if isinstance(one, logging.Logger))


def _settings_of(logger: logging.Logger) -> tuple[int, bool, bool]:
    return logger.level, logger.propagate, logger.disabled


def _hang(
    logger: logging.Logger,
    settings: tuple[int, bool, bool],
    attached: list[logging.Handler],
    filters: list[Any],
    alive: list[Any] | None,
) -> None:
    """Gives a logger its handlers, filters and switches; a handler that is new is closed, and its file with it."""
    gone = [one for one in logger.handlers if not any(one is other for other in attached)]
    if gone or logger.handlers != attached:
        logger.handlers[:] = attached
    if logger.filters != filters:
        logger.filters[:] = filters
    if _settings_of(logger) != settings:
        level, logger.propagate, logger.disabled = settings
        logger.setLevel(level)
    for one in gone:
        if alive is not None and not any(ref() is one for ref in alive):
            one.close()


def _handlers() -> list[Any] | None:
    """Weak references to all handlers that there are, in a logger or not; None where logging does not tell."""
    listed = getattr(logging, "_handlerList", None)
    return None if listed is None else list(listed)


def _is_librarys(name: str) -> bool:
    package = name.partition(".")[0].lower()  # DeepSpeed's is named "DeepSpeed"
    found = next((one for one in list(sys.modules) if one.lower() == package), None)
    return found is not None and not is_users(found)


def _warnings_undo() -> Undo:
    """What is shown of warnings, and where: `simplefilter("ignore")` in a cell would hide those of later cells."""
    listed: Any = warnings.filters
    filters, show = list(listed), warnings.showwarning

    def undo() -> None:
        if warnings.showwarning is not show:
            logging.captureWarnings(show is _CAPTURING)
            warnings.showwarning = show
        if warnings.filters is not listed or listed != filters:
            warnings.resetwarnings()  # so that what was shown once is judged anew
            warnings.filters = listed
            listed[:] = filters

    return undo


def _switches() -> tuple[Switch, ...]:
    """Which lines of log are dropped; how numpy and torch print numbers, and what numpy does about overflows."""
    options: Any = getattr(getattr(torch, "_tensor_str", None), "PRINT_OPTS", None)
    return (
        Switch("logging's switch", lambda: logging.root.manager.disable, logging.disable),
        Switch("numpy's print options", np.get_printoptions, lambda printed: np.set_printoptions(**printed)),
        Switch("numpy's errors", np.geterr, lambda errors: np.seterr(**errors)),
        *(
            attribute("torch's print options", options, name)
            for name in getattr(type(options), "__dataclass_fields__", ())
        ),
    )


def _figures_undo() -> Undo:
    """Figures of pyplot that the cell leaves open are closed, or the notebook would show them below a later cell."""
    before = _open_figures()

    def undo() -> None:
        for number, manager in _open_figures().items():
            if before.get(number) is not manager:
                sys.modules["matplotlib._pylab_helpers"].Gcf.destroy(manager)

    return undo


def _open_figures() -> dict[Any, Any]:
    """Number -> manager, in the order in which they were last drawn to; none where matplotlib is not in use."""
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    return dict(getattr(getattr(helpers, "Gcf", None), "figs", {}))
