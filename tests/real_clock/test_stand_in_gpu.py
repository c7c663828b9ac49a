"""Whole programs on the stand-in GPU: what they are bound by there is known from how they are written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.repository import ROOT

pytestmark = pytest.mark.alone

_LOOP = """
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

device = "cuda" if torch.cuda.is_available() else "cpu"

made = torch.randn({batch}, {width})

class Data(Dataset):
    def __len__(self):
        return {steps}
    def __getitem__(self, index):
        time.sleep({fetch_s})
        return made

model = {model}.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach={foreach})
for inputs in DataLoader(Data(), batch_size=None, pin_memory=True):
    inputs = inputs.to(device, non_blocking=True)
    optimizer.zero_grad()
    loss = model(inputs).square().mean()
    loss.backward()
    optimizer.step()
    {last}
"""
_BIG = "nn.Sequential(nn.Linear(32, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 8))"
_MANY = "nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(40)])"
_SMALL = "nn.Linear(32, 8)"
_PLAIN = {"batch": 512, "steps": 40, "fetch_s": 0, "width": 32, "model": _BIG, "foreach": None, "last": ""}
PROGRAMS: dict[str, dict[str, Any]] = {
    "compute": {},
    "item": {"last": "value = loss.item()"},
    "input": {"model": _SMALL, "batch": 64, "fetch_s": 0.02},
    "host": {"model": _MANY, "batch": 64, "width": 8, "foreach": False},
}


def ran(how: str, room: Path, *names: str) -> dict[str, dict[str, Any]]:
    """What `stranger_run` says of these programs, one after the other in one process."""
    for name in names:
        (room / f"{name}.py").write_text(_LOOP.format(**{**_PLAIN, **PROGRAMS[name]}))
    command = [sys.executable, "-m", "tests.support.stranger_run", "gpu", how, *(str(room / f"{n}.py") for n in names)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return dict(zip(names, map(json.loads, lines), strict=True))


def test_what_binds_a_program_on_the_card_is_what_is_told(tmp_path: Path) -> None:
    told = ran("watched", tmp_path, *PROGRAMS)
    assert {name: one["class"] for name, one in told.items()} == {**{n: n for n in PROGRAMS}, "item": "compute"}
    assert told["compute"]["shares"]["gpu_busy_share"] > 0.9


def test_the_card_itself_says_the_same_without_us(tmp_path: Path) -> None:
    bare = ran("bare", tmp_path, "compute", "input", "host")
    assert bare["compute"]["busy"] > 0.9
    assert bare["input"]["busy"] < 0.2 and bare["input"]["step_s"] >= 0.02
    assert bare["host"]["busy"] < 0.5
