"""Finds the models of a loop by names: the modules that no other one contains; and describes them.

Only outermost modules are ever wrapped: a wrapper on every submodule would cost about 9 us a call and split a compiled
model into several graphs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

from torch import Tensor, nn

from gpu_doctor.capture.describe.names import named
from gpu_doctor.capture.frameworks import FRAMEWORKS

CALL: Final = "_compiled_call_impl"
"""Attribute in which torch looks for a module's compiled call before it makes the usual call."""
OURS: Final = "_gpu_doctor_over"
"""Attribute of our wrapper in that place: the value that was there before, None for none."""
_KIND: Final = "_modules"
_BOXES: Final = tuple(name for framework in FRAMEWORKS for name in framework.boxes)


def outermost(
    namespace: Mapping[str, Any] | None, parameters: Iterable[Tensor] | None = None, known: Container[int] = ()
) -> list[nn.Module]:
    """Returns the modules that names lead to (see `names.named`) and that no other one contains.

    A mere container of modules, with no `forward` of its own, is replaced by the modules in it.

    Args:
        namespace: the names that the loop runs with; None = none.
        parameters: parameters of the optimizers; None or empty = all parameters.
        known: ids of modules to leave out.

    Returns:
        Modules that hold at least one of `parameters` (or any parameter at all), each once, in the order found.
    """
    wanted = {id(parameter) for parameter in parameters or ()}
    candidates = [candidate for candidate in named(namespace, nn.Module) if _KIND in vars(candidate)]
    found = [candidate for candidate in unboxed(candidates) if id(candidate) not in known]
    inner = {id(part) for module in found for part in module.modules() if part is not module}
    return [module for module in found if id(module) not in inner and _holds(module, wanted)]


def described(modules: Iterable[nn.Module], parameters: Iterable[Tensor] | None = None) -> dict[str, Any]:
    """Describes a model, under the names of `recording.Setup`.

    Args:
        modules: outermost modules.
        parameters: the trained parameters; None or empty = all parameters of the modules.

    Returns:
        `dtype` and `device` (those of most parameter bytes, empty or `cpu` without parameters), `parameters` (count),
        `parameter_bytes`, `models` (class names) and `layers` (number of leaf modules by kind). Shared parameters and
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
        "parameters": sum(size_of(parameter)[0] for parameter in counted.values()),
        "parameter_bytes": sum(dtypes.values()),
        "models": tuple(type(module).__name__ for module in outer),
        "layers": dict(layers.most_common()),
    }


def compiles_itself(module: nn.Module) -> bool:
    """True if the user's code compiled the module, its `forward` or a wrapper of it; our wrapper does not count."""
    call, forward = vars(module).get(CALL), vars(module).get("forward")
    compiled = getattr(call, OURS, call) is not None or "_torchdynamo_orig_callable" in getattr(forward, "__dict__", ())
    return type(module).__name__ == "OptimizedModule" or compiled


def unboxed(modules: Iterable[nn.Module]) -> list[nn.Module]:
    """Returns the modules, each once; a mere container of modules is replaced by the modules in it."""
    found: dict[int, nn.Module] = {}
    for module in modules:
        inside = unboxed(part for part in vars(module)[_KIND].values() if part is not None) if _boxes(module) else []
        for inner in inside or [module]:
            found.setdefault(id(inner), inner)
    return list(found.values())


def _boxes(module: nn.Module) -> bool:
    """True if the module only contains others: neither its class nor the instance defines a `forward`.

    The `forward` of a framework's class in `Framework.boxes`, which only raises, does not count.
    """
    if "forward" in vars(module):
        return False
    owner = next((cls for cls in type(module).__mro__ if "forward" in vars(cls)), nn.Module)
    return owner is nn.Module or owner.__name__ in _BOXES


def _holds(module: nn.Module, wanted: set[int]) -> bool:
    """True if a module has a parameter with a wanted id, or any parameter if `wanted` is empty."""
    return any(not wanted or id(parameter) in wanted for parameter in module.parameters())


def bytes_by(parameters: Iterable[Tensor]) -> tuple[dict[str, int], dict[str, int]]:
    """Returns the parameters' bytes by device, and by dtype, largest first."""
    devices, dtypes = Counter[str](), Counter[str]()
    for parameter in parameters:
        devices[str(parameter.device)] += size_of(parameter)[1]
        dtypes[str(parameter.dtype).removeprefix("torch.")] += size_of(parameter)[1]
    return dict(devices.most_common()), dict(dtypes.most_common())


def size_of(parameter: Tensor) -> tuple[int, int]:
    """Returns elements and bytes of a parameter; both are 0 for a lazy parameter without a shape."""
    try:
        return parameter.numel(), parameter.numel() * parameter.element_size()
    except Exception:
        return 0, 0
