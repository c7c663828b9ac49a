"""Names the changes of a cell that a trial does not put back, as far as the text shows them.

A snapshot puts back what names lead to, random numbers and ten switches (`process.py`). Here are the other things that
training cells change: settings of libraries and of the process, functions of libraries that the cell replaces, and
what the user's own cached functions remember.
"""

from __future__ import annotations

import ast
import functools
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpu_doctor import formatting
from gpu_doctor.cell import CellSource, is_among
from gpu_doctor.cell.syntax import dotted, imported, name_of, parts_of_target
from gpu_doctor.trials.reaching_out import sources
from gpu_doctor.trials.runner import Runner
from gpu_doctor.trials.said_before import Beforehand
from gpu_doctor.trials.snapshot.parts import dict_of, is_users

_MOST: Final = 6
"""Most changes that are named."""
_CALLS: Final = (
    "logging.basicConfig logging.disable logging.captureWarnings logging.config.* *.addHandler *.removeHandler "
    "warnings.simplefilter warnings.filterwarnings warnings.resetwarnings "
    "numpy.set_printoptions numpy.seterr torch.set_printoptions torch._tensor_str.set_printoptions "
    "pandas.set_option pandas.*.set_option "
    "matplotlib.use matplotlib.rc* matplotlib.style.* matplotlib.pyplot.rc* matplotlib.pyplot.style.* seaborn.set* "
    "seaborn.*.set_theme matplotlib.pyplot.figure matplotlib.pyplot.subplots matplotlib.pyplot.plot "
    "posix.umask os.umask os.nice posix.nice posix.sched_setaffinity os.sched_setaffinity resource.setrlimit "
    "socket.setdefaulttimeout _socket.setdefaulttimeout locale.setlocale atexit.register "
    "gc.freeze gc.unfreeze gc.disable gc.enable gc.set_threshold decimal.setcontext _decimal.setcontext "
    "sys.setrecursionlimit sys.settrace sys.setprofile sys.path.* "
    "multiprocessing.*set_start_method torch.multiprocessing.set_* "
    "torch.set_flush_denormal torch.set_num_interop_threads torch.cuda.set_device torch.backends.*enable_* "
    "torch.backends.mha.set_* torch.backends.mkldnn.set_* torch.nn.modules.module.register_module_* "
    "torch.optim.optimizer.register_optimizer_* torch.cuda.*set_per_process_memory_fraction "
    "*.set_verbosity* *.disable_progress_bar* *.enable_progress_bar*"
)
"""Calls that change the process or a library for good: full names, as shell patterns."""
_PUT_BACK: Final = (
    "torch.backends.cudnn.benchmark torch.backends.cudnn.deterministic torch.backends.*allow_tf32 "
    "torch.backends.*fp32_precision os.environ os.environ.* sys.stdout sys.stderr"
)
"""Assignments that a trial does put back: the ten switches and the output streams."""


def unrestored(case: Runner) -> Beforehand:
    """Names the lines of the cell, and of the user's functions that it calls, whose changes a trial leaves."""
    found: dict[str, str] = {}
    for place, source, namespace in sources(case):
        for what, line in _left_changed(source, namespace):
            found.setdefault(what, f"`{formatting.clean(what, 60)}` in line {line}{place}")
    if not found:
        return Beforehand()
    named = [*found.values()]
    more = f" and {len(named) - _MOST} more" if len(named) > _MOST else ""
    return Beforehand(lost=(f"A trial does not put back what these change: {', '.join(named[:_MOST])}{more}.",))


def _left_changed(source: CellSource, namespace: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yields each change in a text that a trial does not put back, with its line."""
    known = {} if source.tree is None else imported(source.tree)
    known |= {name: meant for name in _names(source) if (meant := _full_name(namespace.get(name)))}
    for node in source.walk(ast.Assign, ast.AugAssign, ast.Delete, ast.Call):
        if isinstance(node, ast.Call):
            meant = _meant(node.func, known)
            if is_among(meant, _CALLS) or _remembers(node.func, namespace):
                yield ast.unparse(node.func), node.lineno
            continue
        targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets
        for target in (part for assigned in targets for part in parts_of_target(assigned)):
            meant = _meant(target, known)
            if _is_librarys(target, meant, known) and not is_among(meant, _PUT_BACK):
                yield ast.unparse(target), node.lineno


def _names(source: CellSource) -> set[str]:
    return {node.id for node in source.walk(ast.Name)}


def _full_name(value: Any) -> str:
    """Returns the full name of a module or of a library's class or function; empty for the user's own."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
        return "" if is_users(value.__module__ or "__main__") else f"{value.__module__}.{value.__qualname__}"
    return ""


def _meant(node: ast.expr, known: Mapping[str, str]) -> str:
    """Returns an expression's full name: `matplotlib.pyplot.rcParams` for `plt.rcParams["lines.linewidth"]`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    parts = dotted(node)
    return ".".join([known.get(parts[0], parts[0]), *parts[1:]]) if parts else f"?.{name_of(node)}"


def _is_librarys(target: ast.expr, meant: str, known: Mapping[str, str]) -> bool:
    """True if a target is an attribute, or an item of one, of a module or class that is not the user's."""
    while isinstance(target, ast.Subscript):
        target = target.value
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Call):  # `decimal.getcontext().prec`
        return is_among(_meant(target.value.func, known), "decimal.getcontext _decimal.getcontext")
    parts = dotted(target)
    if len(parts) < 2 or parts[0] not in known:
        return False
    module = meant.rpartition(".")[0]
    while module and module not in sys.modules:
        module = module.rpartition(".")[0]
    return not module or not is_users(module)  # one that the cell is the first to import is in no snapshot either


def _remembers(func: ast.expr, namespace: Mapping[str, Any]) -> bool:
    """True if a call fills a cache of `functools`, or adds to a function of `functools.singledispatch`."""
    parts = dotted(func)
    value: Any = namespace.get(parts[0]) if parts else None
    if len(parts) == 1:
        return isinstance(value, functools._lru_cache_wrapper) and is_users(value.__module__ or "__main__")
    return parts[1:] == ["register"] and "_clear_cache" in dict_of(value)
