"""A whole step that the user compiles stays as it is without us, and is heard."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from gpu_doctor.capture.fence import Fence
from gpu_doctor.capture.patching import Patches
from gpu_doctor.capture.taps import compiler
from tests.support.one_tap import standing


def test_the_compiler_is_told_when_it_first_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    class Rules:
        add = told.append

    class Compiler:
        trace_rules = Rules

    monkeypatch.setattr(compiler, "_known", [])
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    monkeypatch.setattr(torch, "_dynamo", Compiler, raising=False)

    def compile(model: Any) -> Any:
        monkeypatch.setitem(sys.modules, "torch._dynamo", Compiler)
        return model

    monkeypatch.setattr(torch, "compile", compile)
    fence = Fence(lambda error: pytest.fail(repr(error)))
    with Patches() as patches:
        compiler.leave_us_out(fence, patches)
        assert not told and torch.compile is not compile
        assert torch.compile(abs) is abs
        assert told == [f"gpu_doctor.capture.{name}" for name in compiler.LEFT_OUT]
        torch.compile(abs)
        assert len(told) == len(compiler.LEFT_OUT)
    assert standing((torch, "compile")) == [compile]
    there: list[str] = []
    with Patches() as patches:
        compiler.leave_us_out(fence, patches, lambda: there.append("there"))
        assert there == ["there"]
        torch.compile(abs)
        assert there == ["there"] * 2
    assert torch.compile is compile


def test_what_is_left_out_is_there() -> None:
    for name in compiler.LEFT_OUT:
        assert f"gpu_doctor.capture.{name}" in sys.modules
