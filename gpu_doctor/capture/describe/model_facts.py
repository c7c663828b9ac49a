"""Facts about models and optimizers that rules read: devices, dtypes, layouts, kernels in use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from gpu_doctor.capture.describe.models import bytes_by, compiles_itself, size_of
from gpu_doctor.recording.setup import ModelFacts, OptimizerFacts

MOST_TABLES: Final = 8
_WRAPPERS: Final = {
    "DataParallel": "DataParallel",
    "DistributedDataParallel": "DistributedDataParallel",
    "FullyShardedDataParallel": "FullyShardedDataParallel",
    "FSDPModule": "FullyShardedDataParallel",  # what fully_shard() makes of a module (FSDP2)
}


def model_facts(modules: Iterable[nn.Module], namespace: Mapping[str, Any] | None = None) -> ModelFacts:
    """What outermost modules are made of, all together.

    Args:
        modules: outermost modules.
        namespace: where the code runs, for compiled functions that call them.
    """
    outer = list(modules)
    places = {id(part): (name, part) for module in outer for name, part in module.named_modules()}
    parameters = {id(p): p for module in outer for p in module.parameters()}
    devices, dtypes = bytes_by(parameters.values())
    tables = _dense_tables(places.values())
    convolutions = [part for _, part in places.values() if isinstance(part, _ConvNd) and len(part.kernel_size) == 2]
    return ModelFacts(
        device_bytes=devices,
        dtype_bytes=dtypes,
        convolutions=len(convolutions),
        channels_last=sum(channels_last(getattr(part, "weight", None)) for part in convolutions),
        compiled=any(compiles_itself(part) for _, part in places.values()) or _calls_compiled(namespace or {}),
        tables=tuple(
            f"{name or 'model'}: {type(one).__name__} {one.num_embeddings} x {one.embedding_dim}"
            for name, one in tables[:MOST_TABLES]
        ),
        table_elements=sum(size_of(one.weight)[0] for _, one in tables),
        wrapper=next((found for _, part in places.values() if (found := _wrapper(part))), ""),
    )


def _dense_tables(places: Iterable[tuple[str, nn.Module]]) -> list[tuple[str, nn.Embedding | nn.EmbeddingBag]]:
    """Trained embeddings whose gradient is as large as they are, largest first.

    None whose weight is shared, as with the last layer of a language model: that layer's gradient is dense anyway.
    """
    parts = list(places)
    held = Counter(id(p) for _, part in parts for p in part.parameters(recurse=False))
    found = [
        (name, part)
        for name, part in parts
        if isinstance(part, (nn.Embedding, nn.EmbeddingBag)) and not part.sparse and part.weight.requires_grad
    ]
    return sorted((one for one in found if held[id(one[1].weight)] == 1), key=lambda one: -size_of(one[1].weight)[0])


def optimizer_facts(optimizer: torch.optim.Optimizer) -> OptimizerFacts:
    """What an optimizer steps and by which kernels its parameter groups ask for."""
    groups = optimizer.param_groups
    owned = [p for group in groups for p in group["params"]]
    return OptimizerFacts(
        name=type(optimizer).__name__,
        tensors=len(owned),
        elements=sum(size_of(one)[0] for one in owned),
        foreach=_said(groups, "foreach"),
        fused=_said(groups, "fused"),
        can_fuse=_can_fuse(optimizer, owned),
        momentum=any(bool(group.get("momentum")) for group in groups),
        groups=len(groups),
    )


def channels_last(tensor: Any) -> bool:
    """Whether a 4D or 5D tensor is stored channels last, by its strides: a 1x1 kernel is contiguous either way."""
    if not isinstance(tensor, Tensor) or nn.parameter.is_lazy(tensor):
        return False
    if tensor.dim() not in (4, 5) or tensor.layout is not torch.strided or tensor.size(1) == 1:
        return False
    step = 1
    for dimension in (1, *range(tensor.dim() - 1, 1, -1)):
        if tensor.stride(dimension) != step:
            return False
        step *= tensor.size(dimension)
    return True


def _said(groups: list[dict[str, Any]], option: str) -> bool | None:
    """What all parameter groups say of an option; None where they differ or leave it to torch."""
    said = {group.get(option) for group in groups}
    return bool(one) if len(said) == 1 and (one := said.pop()) is not None else None


def _can_fuse(optimizer: torch.optim.Optimizer, owned: list[Tensor]) -> bool:
    """Whether torch takes `fused=True` for this optimizer, its options and where its parameters lie."""
    if "fused" not in optimizer.defaults or not owned:
        return False
    if any(group.get("differentiable") for group in optimizer.param_groups):
        return False
    try:
        from torch.utils._foreach_utils import _get_fused_kernels_supported_devices
    except ImportError:
        return False
    supported = set(_get_fused_kernels_supported_devices())
    if isinstance(optimizer, torch.optim.Adagrad):
        supported &= {"cpu", "cuda"}
    return all(one.device.type in supported and one.is_floating_point() for one in owned)


def _calls_compiled(namespace: Mapping[str, Any]) -> bool:
    """Whether a compiled function is in the namespace: a loop that has one may compile its whole step."""
    return any(
        "_torchdynamo_orig_callable" in getattr(value, "__dict__", ())
        for name, value in list(namespace.items())
        if not name.startswith("_") and type(value).__name__ == "function"
    )


def _wrapper(part: nn.Module) -> str:
    return next((said for kind in type(part).__mro__ if (said := _WRAPPERS.get(kind.__name__))), "")
