"""What surrounds torch.compile: whether this machine can, whose error it was, and leaving nothing behind."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from gpu_doctor.machine import cuda_devices

if TYPE_CHECKING:
    from torch import nn

_PYTHONS: Final = ((3, 14), (2, 10)), ((3, 13), (2, 6))
"""Python version -> the first torch whose torch.compile takes it (torch's release notes)."""
DEVICES: Final = ("cpu", "cuda")
CAPABILITY: Final = 7
"""Triton, which inductor writes GPU code in, needs compute capability 7.0."""


@functools.lru_cache(maxsize=8)
def unsupported(device: str, thorough: bool = False) -> str:
    """Why torch.compile cannot be used here, in one sentence; empty if nothing speaks against it.

    Args:
        device: type of the device that the model is on.
        thorough: ask the compiler itself as well, which costs the seconds of its import once.
    """
    if device not in DEVICES:
        return f"torch.compile is offered on CUDA devices and the CPU, not on {device}."
    import torch

    torch_version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    python = sys.version_info[:2]
    needed = next((version for since, version in _PYTHONS if python >= since), torch_version)
    if torch_version < needed:
        return (
            f"torch {torch.__version__} cannot compile on Python {python[0]}.{python[1]}: it needs torch "
            f"{needed[0]}.{needed[1]}."
        )
    if device == "cpu" and not _cpp_compiler():
        return "torch.compile needs a C++ compiler for the CPU, and none is installed (g++ or clang++)."
    if device == "cuda":
        if find_spec("triton") is None:
            return "torch.compile needs Triton for the GPU, and it is not installed."
        known = [one.capability[0] for one in cuda_devices() if one.capability is not None]
        if known and max(known) < CAPABILITY:
            return "torch.compile needs a GPU from compute capability 7.0 on."
    return _asked(device) if thorough else ""


def _cpp_compiler() -> bool:
    named = os.environ.get("CXX", "").split()
    usual = ("cl",) if sys.platform == "win32" else ("g++", "clang++")
    return any(shutil.which(one) for one in (named[:1] or usual))


def _asked(device: str) -> str:
    try:
        dynamo = import_module("torch._dynamo")
        if not dynamo.is_dynamo_supported():
            return "torch.compile says that it is not supported on this platform and Python."
        if device == "cpu" and not dynamo.is_inductor_supported():
            return "torch.compile's inductor says that it is not supported on this platform."
    except Exception as error:  # a broken installation shows here first
        return f"torch.compile cannot be imported: {error}"
    return ""


def weakly(original: Callable[..., Any], module: nn.Module) -> Callable[..., Any]:
    """`original` of this module, compiled at its first call; knows the module only while it runs."""
    import torch

    compiled = torch.compile(original)
    seen = weakref.ref(module)
    return lambda *args, **kwargs: compiled(seen(), *args, **kwargs)


def is_compilers(error: BaseException) -> bool:
    """Whether torch.compile raised the error, and not the code that it compiled."""
    return type(error).__module__.startswith(("torch._dynamo", "torch._inductor", "torch._functorch"))


@contextmanager
def forgotten_afterwards() -> Iterator[None]:
    """What is compiled in the context is forgotten at its end; what was compiled before stays compiled.

    Compiled code reads helpers that the compiler keeps among the globals of the user's functions. A trial puts those
    globals back, so code that outlived it would look for helpers that are gone.
    """
    codes, cleanups = set(_compiled_codes()), set(_cleanups())
    try:
        yield
    finally:
        made = set(_cleanups()) - cleanups
        touched = [one for key, one in _compiled_codes().items() if key not in codes or _made_of(one) & made]
        _reset(touched)
        for key in made:
            _clean(_cleanups().get(key, []))


def _trackers() -> list[Any]:
    frames = sys.modules.get("torch._dynamo.convert_frame")
    found = [getattr(frames, name, None) for name in ("input_codes", "output_codes")]
    return [one for one in found if one is not None]


def _compiled_codes() -> dict[int, Any]:
    """The code objects that torch.compile has looked at and that are alive, by identity."""
    found = [one() for tracker in _trackers() for one in tracker.seen]
    return {id(code): code for code in found if code is not None}


def _made_of(code: Any) -> set[int]:
    """The compiled codes (by identity) that may run instead of this one."""
    entries = vars(sys.modules["torch._C._dynamo.eval_frame"]).get("_debug_get_cache_entry_list")
    return {id(one.code) for one in entries(code)} if entries is not None else set()


def _reset(codes: list[Any]) -> None:
    """As torch._dynamo.reset() does with all codes."""
    if not codes:
        return
    reset_code = vars(sys.modules["torch._dynamo.eval_frame"])["reset_code"]
    for code in codes:
        reset_code(code)
        for tracker in _trackers():
            if id(code) in tracker.seen_ids:
                tracker.seen_ids.discard(id(code))
                tracker.seen[:] = [one for one in tracker.seen if one() is not code]


def _cleanups() -> dict[int, list[Callable[[], None]]]:
    """What the compiler does when compiled code dies, by the code: it takes its helpers out of the globals."""
    manager = getattr(getattr(sys.modules.get("torch._dynamo.utils"), "CleanupManager", None), "instance", None)
    found: dict[int, list[Callable[[], None]]] = getattr(manager, "values", {})
    return found


def _clean(hooks: list[Callable[[], None]]) -> None:
    """Now rather than when the last frame that knows the code is gone: it would complain of what a trial put back."""
    while hooks:
        with contextlib.suppress(KeyError):
            hooks.pop()()
