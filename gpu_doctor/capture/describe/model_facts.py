"""Collects facts about models and optimizers that rules read: devices, dtypes, layouts, kernels in use."""

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
"""Most embedding tables that are listed by name."""
_WRAPPERS: Final = {
    "DataParallel": "DataParallel",
    "DistributedDataParallel": "DistributedDataParallel",
    "FullyShardedDataParallel": "FullyShardedDataParallel",
    "FSDPModule": "FullyShardedDataParallel",  # the class that fully_shard() gives a module (FSDP2)
}


def model_facts(modules: Iterable[nn.Module], namespace: Mapping[str, Any] | None = None) -> ModelFacts:
    """Returns the facts of some outermost modules together.

    Args:
        modules: outermost modules.
        namespace: names that the code runs with, which may include compiled functions.
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
            f"{name or 'model'}: {type(table).__name__} {table.num_embeddings} x {table.embedding_dim}"
            for name, table in tables[:MOST_TABLES]
        ),
        table_elements=sum(size_of(table.weight)[0] for _, table in tables),
        wrapper=next((found for _, part in places.values() if (found := _wrapper(part))), ""),
    )


def _dense_tables(places: Iterable[tuple[str, nn.Module]]) -> list[tuple[str, nn.Embedding | nn.EmbeddingBag]]:
    """Returns name and module of trained embeddings with a dense gradient, as large as the table, largest first.

    Embeddings that share their weight, as with the last layer of a language model, are left out: that layer's gradient
    is dense anyway.
    """
    parts = list(places)
    owners = Counter(id(p) for _, part in parts for p in part.parameters(recurse=False))
    found = [
        (name, part)
        for name, part in parts
        if isinstance(part, (nn.Embedding, nn.EmbeddingBag)) and not part.sparse and part.weight.requires_grad
    ]
    return sorted(
        (entry for entry in found if owners[id(entry[1].weight)] == 1), key=lambda entry: -size_of(entry[1].weight)[0]
    )


def optimizer_facts(optimizer: torch.optim.Optimizer) -> OptimizerFacts:
    """Returns the parameters that an optimizer steps, and the kernels that its parameter groups request."""
    groups = optimizer.param_groups
    owned = [p for group in groups for p in group["params"]]
    return OptimizerFacts(
        name=type(optimizer).__name__,
        tensors=len(owned),
        elements=sum(size_of(parameter)[0] for parameter in owned),
        foreach=_common_option(groups, "foreach"),
        fused=_common_option(groups, "fused"),
        can_fuse=_can_fuse(optimizer, owned),
        momentum=any(bool(group.get("momentum")) for group in groups),
        groups=len(groups),
    )


def channels_last(tensor: Any) -> bool:
    """True if a 4D or 5D tensor is stored channels last, by its strides: a 1x1 kernel is contiguous either way."""
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


def _common_option(groups: list[dict[str, Any]], option: str) -> bool | None:
    """Returns the value of an option in all parameter groups; None if they differ or leave it to torch."""
    values = {group.get(option) for group in groups}
    return bool(value) if len(values) == 1 and (value := values.pop()) is not None else None


def _can_fuse(optimizer: torch.optim.Optimizer, owned: list[Tensor]) -> bool:
    """True if torch accepts `fused=True` for this optimizer, its options and its parameters' devices."""
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
    return all(parameter.device.type in supported and parameter.is_floating_point() for parameter in owned)


def _calls_compiled(namespace: Mapping[str, Any]) -> bool:
    """True if a compiled function is in the namespace: such a loop may compile its whole step."""
    return any(
        "_torchdynamo_orig_callable" in getattr(value, "__dict__", ())
        for name, value in list(namespace.items())
        if not name.startswith("_") and type(value).__name__ == "function"
    )


def _wrapper(part: nn.Module) -> str:
    """Returns the name of the parallel wrapper that a module is; empty if it is none."""
    return next((name for kind in type(part).__mro__ if (name := _WRAPPERS.get(kind.__name__))), "")
