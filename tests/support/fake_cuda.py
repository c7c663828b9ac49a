"""A torch that could use two GPUs, on a machine that has none: it counts who touches CUDA before the cell does.

What touches it is read off torch's own source, as what initialises CUDA differs from version to version.
"""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import pytest
import torch

from gpu_doctor.machine import cuda
from gpu_doctor.machine.nvml import probe
from tests.support.stub_nvml import GIB, Card, StubNvml

MODULES: Final = ("torch.cuda", "torch.cuda.memory", "torch.cuda.random")
_GUARDED: Final = ("is_initialized", "_lazy_call", "_cuda_isCurrentStreamCapturing", "_cuda_getArchFlags")
"""A function that calls one of these waits until CUDA is initialised, or asks what needs no device."""
UUIDS: Final = ("aaaa", "bbbb")


def touching() -> dict[str, list[ModuleType]]:
    """Names of torch's functions that initialise CUDA or call its driver, with the modules that have them."""
    modules = [inspect.getmodule(torch.cuda), torch.cuda.memory, torch.cuda.random]
    functions: dict[str, Any] = {}
    for module in modules:
        functions |= {name: one for name, one in vars(module).items() if inspect.isfunction(one)}
    calls = {name: _called(one) for name, one in functions.items() if one.__module__ in MODULES}
    calls = {name: called for name, called in calls.items() if called.isdisjoint(_GUARDED) or name == "init"}
    found = {name for name, called in calls.items() if "_lazy_init" in called or any(map(_is_driver, called))}
    while more := {name for name, called in calls.items() if not called.isdisjoint(found)} - found:
        found |= more
    return {name: [one for one in modules if one is not None and hasattr(one, name)] for name in found}


def _called(function: Any) -> set[str]:
    """Names that a function calls, of functions and of attributes."""
    tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(function)))
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = {one.id for one in called if isinstance(one, ast.Name)}
    return names | {one.attr for one in called if isinstance(one, ast.Attribute)}


def _is_driver(name: str) -> bool:
    return name.startswith("_cuda_")


class FakeCuda:
    """Two GPUs that torch can use, and NVML sees; nothing can be put on them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """They are there until the test is over."""
        self.initialised = False
        self.touched: Counter[str] = Counter()
        """What was called before the cell initialised CUDA, by name."""
        answers: dict[str, Any] = {
            "is_available": True,
            "device_count": len(UUIDS),
            "get_device_capability": (9, 0),
            "get_device_name": "torch's card",
            "get_sync_debug_mode": 0,
        }
        for name, modules in touching().items():
            for module in modules:
                monkeypatch.setattr(module, name, self._counting(name, answers.get(name)))
        monkeypatch.setattr(torch.cuda, "get_device_properties", self._counting("get_device_properties", self._card))
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: self.initialised)
        monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda device=None: {})
        monkeypatch.setattr(torch.cuda, "init", self._init)
        monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        monkeypatch.setattr(cuda, "_driver_loads", lambda: True)
        cards = [Card(name="NVML's card", uuid=f"GPU-{one}", bus=f"0000:{one}") for one in UUIDS]
        monkeypatch.setattr(probe, "VENDOR", StubNvml(*cards))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def _init(self) -> None:
        self.initialised = True

    def _counting(self, name: str, answer: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self.initialised:
                self.touched[name] += 1
            return answer(*args, **kwargs) if callable(answer) else answer

        return call

    def _card(self, index: int = 0) -> Any:
        return SimpleNamespace(name="torch's card", total_memory=80 * GIB, major=9, minor=0, uuid=UUIDS[index])
