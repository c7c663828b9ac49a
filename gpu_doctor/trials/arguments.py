"""What a person asks of a case, checked before anything runs: each mistake is one sentence that says what to give."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

from gpu_doctor.trials.executors import RayExecutor


def whole(value: Any, name: str, such_as: int) -> int:
    """A count from 1 up.

    Raises:
        ValueError: if it is anything else.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, such as {name}={such_as}, not {value!r:.60}.")
    return int(value)


def seconds(value: Any, name: str, such_as: int) -> float:
    """A time above 0.

    Raises:
        ValueError: if it is anything else.
    """
    return _above_zero(value, name, f"a number of seconds above 0, such as {name}={such_as}")


def dollars(value: Any, name: str, such_as: float) -> float:
    """What an hour of a machine costs.

    Raises:
        ValueError: if it is no number above 0.
    """
    return _above_zero(value, name, f"dollars an hour above 0, such as {name}={such_as}")


def _above_zero(value: Any, name: str, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < float("inf"):
        raise ValueError(f"{name} must be {what}, not {value!r:.60}.")
    return float(value)


def switch(value: Any, name: str) -> bool:
    """True or False; a text such as 'no' would be taken for a yes.

    Raises:
        TypeError: if it is anything else.
    """
    if not isinstance(value, bool):
        raise TypeError(f"{name} takes True or False, not {value!r:.60}.")
    return value


def executor(value: Any) -> RayExecutor | None:
    """Where a sweep runs; None = on this machine.

    Raises:
        TypeError: if it is no executor, or the class of one.
    """
    if value is None or isinstance(value, RayExecutor):
        return value
    raise TypeError(
        f"executor says where a sweep runs: None for this machine, or gpu_doctor.RayExecutor(...), not {value!r:.60}."
    )


def code(value: Any) -> None:
    """Lets the text of a cell pass, or a function that needs no argument.

    Raises:
        TypeError: if it is neither. ValueError: if the text is empty.
    """
    if isinstance(value, str):
        if not value.strip():
            raise ValueError("The code is empty: give the text of a training cell, or a function that trains.")
        return
    if not callable(value):
        raise TypeError(f"case() takes the text of a cell or a function without arguments, not {type(value).__name__}.")
    needed = _needed(value)
    if needed:
        raise TypeError(
            f"case() calls the function without arguments, and it needs {', '.join(needed)}: give it as "
            "functools.partial(function, ...) or as a lambda."
        )


def names(namespace: Any, name: Any) -> None:
    """Lets the names that a text runs in pass, and what the case is called.

    Raises:
        TypeError: if they are no dict, or it is no text.
    """
    if namespace is not None and not isinstance(namespace, dict):
        raise TypeError(
            f"namespace is the dict of names that the code runs in, such as globals(), not {namespace!r:.60}."
        )
    if not isinstance(name, str):
        raise TypeError(f"name must be a text, such as name='baseline', not {name!r:.60}.")


def _needed(function: Callable[..., Any]) -> list[str]:
    """Parameters that a call must give; empty where the signature cannot be read."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [
        one.name
        for one in parameters
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
