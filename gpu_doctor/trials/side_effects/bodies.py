"""Exchanges the body of a library's function for a while: every reference to the function calls the new body.

Replacing an attribute would miss references taken earlier: `from tracker import log`, `add = writer.add_scalar`, a
callback that a library stored. So the function object stays, and its code is exchanged.
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
    """Makes calls of `function` call `instead` with the same arguments, until the patches come off."""
    code = function.__code__
    own = _template(len(code.co_freevars))
    constants = tuple(instead if constant == _CALLED else constant for constant in own.co_consts)

    def undo() -> None:
        function.__code__ = code

    patches.hook(f"{function.__module__}.{function.__qualname__}", undo)
    function.__code__ = own.replace(co_consts=constants, co_name=code.co_name)


def copy_of(function: types.FunctionType) -> types.FunctionType:
    """Returns a copy of a function that keeps the present body when the original's is exchanged."""
    own = function.__globals__, function.__name__, function.__defaults__, function.__closure__
    copy = types.FunctionType(function.__code__, *own)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def parameters(function: types.FunctionType) -> tuple[str, ...]:
    """Returns the parameter names of a function behind its decorators, without `*args` and `**named`."""
    code: types.CodeType = getattr(inspect.unwrap(function), "__code__", function.__code__)
    return tuple(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


@functools.cache
def _template(free: int) -> types.CodeType:
    """Returns code that passes its arguments on to a constant, with `free` closure variables.

    Python accepts new code for a function only with the same number of closure variables.
    """
    names = ", ".join(f"outer{number}" for number in range(free))
    text = (
        f"def around({names}):\n"
        "    def body(*args, **named):\n"
        f"        if False: ({names}{',' if names else ''})\n"
        f"        called = {_CALLED!r}\n"
        "        return called(*args, **named)\n"
    )
    around = next(
        constant for constant in compile(text, __file__, "exec").co_consts if isinstance(constant, types.CodeType)
    )
    return next(constant for constant in around.co_consts if isinstance(constant, types.CodeType))
