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
    page = PAGE.read_text("utf-8").replace("clip_grad.", "torch.nn.utils.clip_grad.")
    page = page.replace("`fetch` of the fetcher's class", "_MapDatasetFetcher.fetch").replace("the outermost", "Linear")
    page = page.replace("optimizer step hooks, before and after", "optimizer step pre hook, optimizer step post hook")
    for label in names["seen"][-1]:
        assert label.removeprefix("torch.") in page.replace("`", ""), (
            f"{label} is patched, and {PAGE.name} has no reason"
        )
    assert len(names["seen"][-1]) <= MOST and not patching.active()
