"""What belongs to the process and to no name, and a trial puts back: ten switches and the generators."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import gpu_doctor
from gpu_doctor.trials.snapshot.process import SWITCHES, number_formats, process_undos
from gpu_doctor.trials.snapshot.snapshot import Snapshot

LOOP = """
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    optimizer.zero_grad()
    with torch.enable_grad():
        model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
"""
CELLS: dict[str, tuple[str, Callable[[], Any]]] = {
    "torch's recording of gradients": ("torch.set_grad_enabled(False)", torch.is_grad_enabled),
    "torch's default dtype": ("torch.set_default_dtype(torch.float64)", torch.get_default_dtype),
    "torch's default device": (
        "torch.set_default_device('cpu')",
        lambda: getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None),
    ),
    "torch's deterministic algorithms": (
        "torch.use_deterministic_algorithms(True, warn_only=True)",
        torch.is_deterministic_algorithms_warn_only_enabled,
    ),
    "torch's anomaly detection": ("torch.autograd.set_detect_anomaly(True)", torch.is_anomaly_enabled),
    "torch's matmul precision": (
        "torch.set_float32_matmul_precision('medium'); torch.backends.cudnn.allow_tf32 = False",
        lambda: (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32),
    ),
    "cuDNN's choice of algorithms": (
        "torch.backends.cudnn.benchmark = torch.backends.cudnn.deterministic = True",
        lambda: (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic),
    ),
    "torch's threads": ("torch.set_num_threads(torch.get_num_threads() + 1)", torch.get_num_threads),
    "the working folder": ("os.chdir('runs')", Path.cwd),
    "environment variables": (
        "os.environ['GD_NEW'] = 'x'; os.environ['GD_OLD'] = 'y'; del os.environ['GD_GONE']",
        lambda: [os.environ.get(name) for name in ("GD_NEW", "GD_OLD", "GD_GONE")],
    ),
}
"""Label of a switch -> a cell that turns it, and how it is read by other means."""


@pytest.fixture(autouse=True)
def a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GD_OLD", "before")
    monkeypatch.setenv("GD_GONE", "there")
    undos = process_undos()
    yield
    for _, undo in undos:
        undo()


def test_there_are_ten_and_each_has_a_cell_that_turns_it() -> None:
    assert [one.label for one in SWITCHES] == list(CELLS) and len(CELLS) == 10
    assert {one.label for one in number_formats()} < CELLS.keys()


@pytest.mark.parametrize("switch", CELLS)
def test_a_switch_that_a_cell_turns_is_back_and_each_side_finds_it_as_it_was(switch: str) -> None:
    """Where the second side found it turned, it would not be compared with the first under the same conditions."""
    cell, read = CELLS[switch]
    seen: queue.SimpleQueue[str] = queue.SimpleQueue()  # which no snapshot can put back
    before = read()
    space: dict[str, Any] = {"torch": torch, "os": os, "look": lambda: seen.put(f"{read()}")}
    case = gpu_doctor.case(f"look(); {cell}; look()\n{LOOP}", space)
    effect = case.trial({"pin_memory": False} if switch == "torch's threads" else {"threads": 1}, steps=6, pairs=1)
    assert effect.outcome in ("completed", "budget-reached"), effect
    assert read() == before
    noted = [seen.get() for _ in range(seen.qsize())]
    assert len(noted) >= 4 and set(noted[::2]) == {f"{before}"} and f"{before}" not in noted[1::2]


def test_a_switch_that_nobody_may_turn_any_more_hinders_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after torch.backends.disable_global_flags(): to write even what is so already would fail."""
    flags = torch.backends.flags_frozen.__globals__
    monkeypatch.setitem(flags, "__allow_nonbracketed_mutation_flag", False)
    with pytest.raises(RuntimeError):
        torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark
    assert Snapshot.take({}).restore() == ()


def test_the_random_numbers_of_apples_gpu_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    state = [torch.tensor([1])]
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "get_rng_state", lambda: state[0])
    monkeypatch.setattr(torch.mps, "set_rng_state", lambda value: state.__setitem__(0, value))
    before = state[0]
    undos = dict(process_undos())
    state[0] = torch.tensor([2])
    undos["MPS's random numbers"]()
    assert state[0] is before
