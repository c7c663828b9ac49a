"""A whole step that the user compiles stays as it is without us, and is heard."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from gpu_doctor.patching import Patches
from gpu_doctor.taps import uncompiled
from tests.support.one_tap import standing


def test_the_compiler_is_told_when_it_first_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    class Rules:
        add = told.append

    class Compiler:
        trace_rules = Rules

    monkeypatch.setattr(uncompiled, "_known", [])
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    monkeypatch.setattr(torch, "_dynamo", Compiler, raising=False)

    def compile(model: Any) -> Any:
        monkeypatch.setitem(sys.modules, "torch._dynamo", Compiler)
        return model

    monkeypatch.setattr(torch, "compile", compile)
    with Patches() as patches:
        uncompiled.leave_us_out(patches)
        assert not told and torch.compile is not compile
        assert torch.compile(abs) is abs
        assert told == [f"gpu_doctor.{name}" for name in uncompiled.LEFT_OUT]
        torch.compile(abs)
        assert len(told) == len(uncompiled.LEFT_OUT)
    assert standing((torch, "compile")) == [compile]
    with Patches() as patches:
        uncompiled.leave_us_out(patches)
        assert torch.compile is compile


def test_what_is_left_out_is_there() -> None:
    for name in uncompiled.LEFT_OUT:
        assert f"gpu_doctor.{name}" in sys.modules
