"""What is patched while a plain loop runs on a CPU: few places, each of them with its reason in the documentation."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

import gpu_doctor
from gpu_doctor.capture import patching
from tests.support.repository import ROOT

MOST = 25
PAGE = ROOT / "docs" / "reference" / "patches.md"


def test_each_place_that_is_patched_is_in_the_documentation() -> None:
    names: dict[str, Any] = {"torch": torch, "patching": patching, "seen": [], "net": torch.nn.Linear(4, 2)}
    names["optimizer"] = torch.optim.SGD(names["net"].parameters(), lr=0.1)
    names["loader"] = DataLoader(TensorDataset(torch.rand(64, 4)), batch_size=8)
    cell = """
for (x,) in loader:
    optimizer.zero_grad()
    net(x).sum().backward()
    optimizer.step()
    seen.append(patching.active())
"""
    gpu_doctor.case(cell, names).run()
    page = PAGE.read_text("utf-8")
    labels = {label.removesuffix(" Linear") for label in names["seen"][-1]}
    assert not [label for label in labels if f"`{label}`" not in page]
    assert len(names["seen"][-1]) <= MOST and not patching.active()
