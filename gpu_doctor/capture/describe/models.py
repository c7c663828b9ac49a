"""Finding the models of a loop: the modules that no other live module contains, and what they are made of.

Only outermost modules are ever listened to or wrapped: a wrapper on every submodule costs about 9 us a call and splits
a compiled model into several graphs.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from torch import Tensor, nn
from torch.optim import Optimizer

from gpu_doctor.capture.describe.scan import scan
from gpu_doctor.capture.frameworks import FRAMEWORKS

CALL: Final = "_compiled_call_impl"
"""Where torch looks for a module's compiled call before it calls it the usual way."""
OURS: Final = "_gpu_doctor_over"
"""On a listener that stands there: what stood there before it, None for nothing."""
_KIND: Final = "_modules"
_BOXES: Final = tuple(name for one in FRAMEWORKS for name in one.boxes)
_scans: list[list[nn.Module]] = []
"""Not empty within `one_scan`; then its last entry is what the scan found."""
_HISTORY: Final = re.compile(r"_+$|_i?\d+$|_i+$|_[iod]h$")
"""IPython's names for earlier cells and their results: they would bring back models that nobody trains any more."""


def outermost(namespace: Mapping[str, Any] | None, parameters: Iterable[Tensor] | None = None) -> list[nn.Module]:
    """The modules that no other live module contains; of a mere box, which cannot be called, those in it.

    Looked for in the namespace first (its values, and one level of their attributes, so that `trainer.model` is found);
    the whole process is scanned once (some 20 ms for 360 000 objects) only where `parameters` are not all found so.

    Args:
        namespace: the names that the loop runs with; None = none.
        parameters: what the optimizers step; None or empty = all parameters in the namespace.

    Returns:
        Modules that hold at least one of `parameters` (or any parameter at all), each once, in the order found.
    """
    wanted = {id(parameter) for parameter in parameters or ()}
    named = _outermost_of(_modules_in(namespace or {}))
    holders = [module for module in named if _holds(module, wanted)]
    if not wanted or wanted <= {id(p) for module in holders for p in module.parameters()}:
        return holders
    scanned = _alive()
    return [module for module in _outermost_of(scanned) if _holds(module, wanted)]


@contextlib.contextmanager
def one_scan() -> Iterator[None]:
    """Within the context the process is scanned once at most: all that meet a new optimizer look for its model."""
    _scans.append([])
    try:
        yield
    finally:
        _scans.pop()


def described(modules: Iterable[nn.Module], parameters: Iterable[Tensor] | None = None) -> dict[str, Any]:
    """What a model is made of, under the names of `recording.Setup`.

    Args:
        modules: outermost modules.
        parameters: the trained parameters; None or empty = all parameters of the modules.

    Returns:
        `dtype` and `device` (those of most parameter bytes, empty or `cpu` without parameters), `parameters` (count),
        `parameter_bytes`, `models` (class names) and `layers` (kind of leaf module -> how many). Shared parameters and
        layers are counted once.
    """
    outer = list(modules)
    counted = {id(p): p for p in parameters or ()} or {id(p): p for module in outer for p in module.parameters()}
    parts = {id(part): part for module in outer for part in module.modules()}
    layers = Counter(type(part).__name__ for part in parts.values() if not vars(part)[_KIND])
    devices, dtypes = bytes_by(counted.values())
    return {
        "dtype": next(iter(dtypes), ""),
        "device": next(iter(devices), "cpu"),
        "parameters": sum(size_of(one)[0] for one in counted.values()),
        "parameter_bytes": sum(dtypes.values()),
        "models": tuple(type(module).__name__ for module in outer),
        "layers": dict(layers.most_common()),
    }


def compiles_itself(module: nn.Module) -> bool:
    """Whether the user's code compiled the module, as a wrapper or by `module.compile()`; our listener is neither."""
    call = vars(module).get(CALL)
    return type(module).__name__ == "OptimizedModule" or getattr(call, OURS, call) is not None


def owned() -> set[int]:
    """Ids of the parameters of every optimizer in this process; a scan of all objects, see `outermost`."""
    optimizers = (vars(one).get("param_groups", ()) for one in scan(Optimizer))
    return {id(p) for groups in optimizers for group in groups for p in group["params"]}


def _alive() -> list[nn.Module]:
    """Every module of the process."""
    if _scans and _scans[-1]:
        return _scans[-1]
    found = _scans[-1] if _scans else []
    found += [one for one in scan(nn.Module) if _KIND in vars(one)]
    return found


def _modules_in(namespace: Mapping[str, Any]) -> list[nn.Module]:
    found: dict[int, nn.Module] = {}
    for name, value in list(namespace.items()):
        if _HISTORY.match(name):
            continue
        if issubclass(type(value), nn.Module):
            found.setdefault(id(value), value)
            continue
        for inner in _attributes(value):
            if issubclass(type(inner), nn.Module):
                found.setdefault(id(inner), inner)
    return [module for module in found.values() if _KIND in vars(module)]


def _attributes(value: Any) -> list[Any]:
    """One level of attributes, or the members of a short plain container; never wakes a lazy proxy."""
    kind = type(value)
    if kind in (list, tuple):
        return list(value[:32])
    if kind is dict:
        return list(value.values()) if len(value) <= 32 else []
    if kind.__module__ == "builtins" or kind.__dictoffset__ == 0 or issubclass(kind, (type, Tensor)):
        return []
    try:
        return list(object.__getattribute__(value, "__dict__").values())
    except Exception:
        return []


def _outermost_of(modules: list[nn.Module]) -> list[nn.Module]:
    inner = {id(child) for module in modules for part in module.modules() for child in vars(part)[_KIND].values()}
    return _unboxed([module for module in modules if id(module) not in inner])


def _unboxed(modules: list[nn.Module]) -> list[nn.Module]:
    found: dict[int, nn.Module] = {}
    for module in modules:
        inside = _unboxed([part for part in vars(module)[_KIND].values() if part is not None]) if _boxes(module) else []
        for one in inside or [module]:
            found.setdefault(id(one), one)
    return list(found.values())


def _boxes(module: nn.Module) -> bool:
    """Whether the module only holds others: neither its class nor the instance says what its forward is.

    Of a framework's box (`Framework.boxes`) the `forward` is one that raises.
    """
    if "forward" in vars(module):
        return False
    says = next((cls for cls in type(module).__mro__ if "forward" in vars(cls)), nn.Module)
    return says is nn.Module or says.__name__ in _BOXES


def _holds(module: nn.Module, wanted: set[int]) -> bool:
    return any(not wanted or id(parameter) in wanted for parameter in module.parameters())


def bytes_by(parameters: Iterable[Tensor]) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes of parameters by the device that they lie on, and by their dtype, most first."""
    devices, dtypes = Counter[str](), Counter[str]()
    for one in parameters:
        devices[str(one.device)] += size_of(one)[1]
        dtypes[str(one.dtype).removeprefix("torch.")] += size_of(one)[1]
    return dict(devices.most_common()), dict(dtypes.most_common())


def size_of(parameter: Tensor) -> tuple[int, int]:
    """Elements and bytes; a lazy parameter that has no shape yet counts as nothing."""
    try:
        return parameter.numel(), parameter.numel() * parameter.element_size()
    except Exception:
        return 0, 0
