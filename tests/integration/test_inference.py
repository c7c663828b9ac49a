"""A loop that trains nothing (predictions, an export of embeddings) waits for its loader as any other does."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import gpu_doctor


class Stored(Dataset[torch.Tensor]):
    """Each sample is a request to a slow store."""

    def __len__(self) -> int:
        return 240

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.004)
        return torch.full((16,), float(index))


EXPORT = """
embeddings = []
with torch.no_grad():
    for batch in loader:
        embeddings.append(model(batch))
"""


def test_its_loader_is_named_and_its_cure_is_forecast_and_tried() -> None:
    space: dict[str, Any] = {"torch": torch, "model": nn.Linear(16, 8), "loader": DataLoader(Stored(), batch_size=8)}
    case = gpu_doctor.case(EXPORT, space)
    case.run()
    diagnosis = case.diagnosis
    assert diagnosis is not None and diagnosis.bottleneck == "input"
    assert (diagnosis.vitals.steps, diagnosis.vitals.samples) == (30, 240)
    assert diagnosis.findings[0].rule in ("loader-without-workers", "slow-storage")
    said = " ".join((diagnosis.findings[0].headline, *diagnosis.findings[0].evidence, diagnosis.verdict))
    assert "train" not in said.replace("training thread", "")
    cure = diagnosis.findings[0].prescriptions[0]
    assert int(cure.settings.get("num_workers", 0)) > 0 and (cure.predicted_speedup or 0.0) > 1.0
    assert len(space["embeddings"]) == 30
    effect = case.trial({"num_workers": 2}, steps=15, pairs=1)
    assert effect.outcome in ("completed", "budget-reached") and len(space["embeddings"]) == 30
