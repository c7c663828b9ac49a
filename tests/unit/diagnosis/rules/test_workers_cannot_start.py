"""workers-cannot-start: the loader's own refusal is the one that the rule knows."""

from __future__ import annotations

import sys
import types

import pytest
from torch.utils.data import DataLoader, TensorDataset

from gpu_doctor.capture.describe.loader_limits import refusal
from gpu_doctor.diagnosis.rules.prescriptions import CANNOT


def test_the_refusal_is_the_one_of_the_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    rows = type("Rows", (TensorDataset,), {"__module__": "__main__"})()
    loader = DataLoader(rows, num_workers=1, multiprocessing_context="spawn", batch_sampler=[])
    assert refusal(loader, "num_workers", 2).startswith(CANNOT)
