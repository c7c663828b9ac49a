"""Describes models, optimizers, loaders and batches as facts for the recording."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gpu_doctor.capture.describe.loader_limits import MULTIPROCESSING_CONTEXT as MULTIPROCESSING_CONTEXT
    from gpu_doctor.capture.describe.loader_limits import refusal as refusal
    from gpu_doctor.capture.describe.loaders import AnyLoader as AnyLoader
    from gpu_doctor.capture.describe.loaders import batch_size_of as batch_size_of
    from gpu_doctor.capture.describe.loaders import written_batch as written_batch
    from gpu_doctor.capture.describe.model_facts import optimizer_facts as optimizer_facts
    from gpu_doctor.capture.describe.names import named as named

# Name -> module, which is loaded when the name is first used, so that code loads only the modules that it needs.
_FACE: Final = {
    "AnyLoader": "loaders",
    "MULTIPROCESSING_CONTEXT": "loader_limits",
    "batch_size_of": "loaders",
    "named": "names",
    "optimizer_facts": "model_facts",
    "refusal": "loader_limits",
    "written_batch": "loaders",
}
__all__ = ["loaders", "models", *_FACE]


def __getattr__(name: str) -> Any:
    if name not in _FACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_FACE[name]}"), name)
