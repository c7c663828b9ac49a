"""Who waits for a module hears of it when it is imported, and nothing is left of the waiting."""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import BuiltinImporter
from pathlib import Path

import pytest

from gpu_doctor.capture import Patches
from gpu_doctor.trials.side_effects.arrivals import told_of_arrivals


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that is not loaded yet."""
    (tmp_path / "gd_arriving.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "gd_arriving", raising=False)
    return "gd_arriving"


def test_each_waiting_function_is_called_once_after_the_modules_own_code(name: str) -> None:
    """A trial has two of them, one for files and one for trackers."""
    found, heard = list(sys.meta_path), list[tuple[str, int]]()
    with Patches() as patches:
        for number in range(2):
            told_of_arrivals(
                lambda one, number=number: heard.append((one, sys.modules[one].value + number)),  # type: ignore[misc]
                name.__eq__,
                patches,
            )
        module = importlib.import_module(name)
        assert sorted(heard) == [(name, 1), (name, 2)]
        assert "exec_module" not in vars(module.__loader__)
        importlib.reload(module)
        importlib.import_module("json")
    assert sys.meta_path == found
    assert {one for one, _ in heard} == {name}


def test_the_loader_of_built_in_modules_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a class, which loads all of them: what is written on it would stay."""
    before = vars(BuiltinImporter)["exec_module"]
    monkeypatch.delitem(sys.modules, "_symtable", raising=False)
    with Patches() as patches:
        told_of_arrivals(lambda one: None, "_symtable".__eq__, patches)
        importlib.import_module("_symtable")
        assert vars(BuiltinImporter)["exec_module"] is before
