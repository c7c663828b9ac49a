"""Finding the models of a loop by names: the modules that no other one contains, and what they are made of.

Only outermost modules are ever listened to or wrapped: a wrapper on every submodule costs about 9 us a call and splits
a compiled model into several graphs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

from torch import Tensor, nn

from gpu_doctor.capture.describe.names import named
from gpu_doctor.capture.frameworks import FRAMEWORKS

CALL: Final = "_compiled_call_impl"
"""Where torch looks for a module's compiled call before it calls it the usual way."""
OURS: Final = "_gpu_doctor_over"
"""On a listener that stands there: what stood there before it, None for nothing."""
_KIND: Final = "_modules"
_BOXES: Final = tuple(name for one in FRAMEWORKS for name in one.boxes)


def outermost(
    namespace: Mapping[str, Any] | None, parameters: Iterable[Tensor] | None = None, known: Container[int] = ()
) -> list[nn.Module]:
    """The modules to which names lead (see `names.named`) and which none of them contains; of a mere box, those in it.

    Args:
        namespace: the names that the loop runs with; None = none.
        parameters: what the optimizers step; None or empty = all parameters.
        known: ids of modules that are not wanted, nor gone through.

    Returns:
        Modules that hold at least one of `parameters` (or any parameter at all), each once, in the order found.
    """
    wanted = {id(parameter) for parameter in parameters or ()}
    named_ones = [one for one in named(namespace, nn.Module) if _KIND in vars(one)]
    found = [one for one in unboxed(named_ones) if id(one) not in known]
    inner = {id(part) for module in found for part in module.modules() if part is not module}
    return [module for module in found if id(module) not in inner and _holds(module, wanted)]


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
    """Whether the user's code compiled the module, its `forward` or a wrapper of it; our listener is neither."""
    call, forward = vars(module).get(CALL), vars(module).get("forward")
    compiled = getattr(call, OURS, call) is not None or "_torchdynamo_orig_callable" in getattr(forward, "__dict__", ())
    return type(module).__name__ == "OptimizedModule" or compiled


def unboxed(modules: Iterable[nn.Module]) -> list[nn.Module]:
    """The modules, each once; in the place of those that only hold others, what is in them."""
    found: dict[int, nn.Module] = {}
    for module in modules:
        inside = unboxed(part for part in vars(module)[_KIND].values() if part is not None) if _boxes(module) else []
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
