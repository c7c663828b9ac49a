"""Checks the arguments of a case before anything runs: each error is one sentence that says what to give."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

from gpu_doctor.trials.executors import RayExecutor


def whole(value: Any, name: str, such_as: int) -> int:
    """Returns a whole number of at least 1.

    Raises:
        ValueError: if it is anything else.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, such as {name}={such_as}, not {value!r:.60}.")
    return int(value)


def seconds(value: Any, name: str, such_as: int) -> float:
    """Returns a number of seconds above 0.

    Raises:
        ValueError: if it is anything else.
    """
    return _above_zero(value, name, f"a number of seconds above 0, such as {name}={such_as}")


def dollars(value: Any, name: str, such_as: float) -> float:
    """Returns a price of a machine in dollars an hour.

    Raises:
        ValueError: if it is no number above 0.
    """
    return _above_zero(value, name, f"dollars an hour above 0, such as {name}={such_as}")


def _above_zero(value: Any, name: str, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < float("inf"):
        raise ValueError(f"{name} must be {what}, not {value!r:.60}.")
    return float(value)


def switch(value: Any, name: str) -> bool:
    """Returns True or False; a text such as 'no' would count as True.

    Raises:
        TypeError: if it is anything else.
    """
    if not isinstance(value, bool):
        raise TypeError(f"{name} takes True or False, not {value!r:.60}.")
    return value


def executor(value: Any) -> RayExecutor | None:
    """Returns the executor of a sweep; None = this machine.

    Raises:
        TypeError: if it is no executor, or the class of one.
    """
    if value is None or isinstance(value, RayExecutor):
        return value
    raise TypeError(
        f"executor says where a sweep runs: None for this machine, or gpu_doctor.RayExecutor(...), not {value!r:.60}."
    )


def code(value: Any) -> None:
    """Checks that the code is a cell's text or a function without required arguments.

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
    """Checks the namespace and the name of a case.

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
    """Returns the required parameters of a function; empty if its signature cannot be read."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
