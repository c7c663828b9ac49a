"""Another body for a function of a library, for a while: whoever holds the function, under any name, calls the new one.

An attribute that is replaced reaches nobody who took the function before: `from tracker import log`, `add =
writer.add_scalar`, a callback that a library keeps. So the function stays the object that it is, and its code is
exchanged.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any, Final

from gpu_doctor.capture import Patches

_CALLED: Final = "stands for what is called"


def exchange(function: types.FunctionType, instead: Callable[..., Any], patches: Patches) -> None:
    """Calls of `function` call `instead` with the same arguments, until the patches come off."""
    code = function.__code__
    own = _template(len(code.co_freevars))
    constants = tuple(instead if one == _CALLED else one for one in own.co_consts)

    def undo() -> None:
        function.__code__ = code

    patches.hook(f"{function.__module__}.{function.__qualname__}", undo)
    function.__code__ = own.replace(co_consts=constants, co_name=code.co_name)


def copy_of(function: types.FunctionType) -> types.FunctionType:
    """A function that does what this one does now, whatever becomes of its body."""
    own = function.__globals__, function.__name__, function.__defaults__, function.__closure__
    copy = types.FunctionType(function.__code__, *own)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def parameters(function: types.FunctionType) -> tuple[str, ...]:
    """The names of a function's parameters, of the one behind its decorators; `*args` and `**named` are none."""
    code: types.CodeType = getattr(inspect.unwrap(function), "__code__", function.__code__)
    return tuple(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


@functools.cache
def _template(free: int) -> types.CodeType:
    """Code that calls a constant with whatever it gets, and has as many variables of an outer function.

    Python lets a function have no code with another number of these.
    """
    names = ", ".join(f"outer{number}" for number in range(free))
    text = (
        f"def around({names}):\n"
        "    def body(*args, **named):\n"
        f"        if False: ({names}{',' if names else ''})\n"
        f"        called = {_CALLED!r}\n"
        "        return called(*args, **named)\n"
    )
    around = next(one for one in compile(text, __file__, "exec").co_consts if isinstance(one, types.CodeType))
    return next(one for one in around.co_consts if isinstance(one, types.CodeType))
