"""docs/contributing/adding.md, tried: a rule, a knob and a framework, each one file and its line in a list."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.repository import ROOT

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).parent / "guide"


def grown(folder: Path, file: str, where: str, *lines: tuple[str, str, str]) -> None:
    """A copy of the product with one more file, and lines in its lists: a list's file, what stands before, the line."""
    shutil.copytree(ROOT / "gpu_doctor", folder / "gpu_doctor", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(GUIDE / file, folder / "gpu_doctor" / where / file)
    for name, above, line in lines:
        path = folder / "gpu_doctor" / name
        text = path.read_text(encoding="utf-8")
        assert above in text, (name, above)
        path.write_text(text.replace(above, above + line), encoding="utf-8")


def said(folder: Path, program: str) -> str:
    """What a program prints with that product, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))}
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, cwd=folder, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def test_a_rule(tmp_path: Path) -> None:
    entry = ("diagnosis/rules/input/__init__.py", "    data_starved,\n", "    tiny_last_batch,\n")
    grown(tmp_path, "tiny_last_batch.py", "diagnosis/rules/input", entry)
    program = """
import gpu_doctor
from gpu_doctor.diagnosis import diagnose
from gpu_doctor.diagnosis.rules import RULES
from tests.support.recordings import Loop
sick = Loop(batch=64, loader={"dataset_len": 321, "batches": 6, "drop_last": False})
well = sick.but(loader={"dataset_len": 321, "batches": 5, "drop_last": True})
for loop in (sick, well):
    found = diagnose(loop.recording())
    print([(one.rule, round(one.cost_share, 3)) for one in found.findings if one.rule == "tiny-last-batch"])
print("drop_last=True" in str(gpu_doctor.explain("tiny-last-batch")))
print([one.family for one in RULES if one.name == "tiny-last-batch"])
"""
    assert said(tmp_path, program).splitlines() == ["[('tiny-last-batch', 0.167)]", "[]", "True", "['input']"]


def test_a_knob(tmp_path: Path) -> None:
    imported = ("trials/knobs/__init__.py", "    cudnn_benchmark,\n", "    deterministic,\n")
    listed = ("trials/knobs/__init__.py", "*(channels_last, ", "deterministic, ")
    above = '    "cudnn_benchmark": (("backends.cudnn.benchmark", False),),\n'
    switch = ("cell/switches.py", above, '    "deterministic": (("use_deterministic_algorithms", True),),\n')
    grown(tmp_path, "deterministic.py", "trials/knobs", imported, listed, switch)
    program = """
import torch
import gpu_doctor
CELL = '''
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
seen = []
for _ in range(60):
    seen.append(torch.are_deterministic_algorithms_enabled())
    optimizer.zero_grad(); model(torch.ones(8, 4)).sum().backward(); optimizer.step()
'''
case = gpu_doctor.case(CELL, {})
effect = case.trial({"deterministic": True}, steps=10, seconds=5, pairs=1)
print(effect.speedup is not None, torch.are_deterministic_algorithms_enabled())
fix = case.fix({"deterministic": True})
print("torch.use_deterministic_algorithms(True)" in fix.cells[0].after)
from gpu_doctor.report.panel import PanelInput, state
from gpu_doctor.trials.knobs import KNOBS
shown = state(PanelInput(status="idle", setup=case.baseline.setup, recordings=(case.baseline,)), KNOBS)
print([one["name"] for one in shown["knobs"] if "determ" in one["name"]])
"""
    assert said(tmp_path, program).splitlines() == ["True False", "True", "['deterministic']"]


def test_a_framework(tmp_path: Path) -> None:
    imported = ("capture/frameworks/__init__.py", "import accelerate, ", "tinytrain, ")
    listed = ("capture/frameworks/__init__.py", "for framework in (transformers, ", "tinytrain, ")
    grown(tmp_path, "tinytrain.py", "capture/frameworks", imported, listed)
    (tmp_path / "tinytrain.py").write_text(TINYTRAIN)
    program = """
import gpu_doctor, torch, tinytrain
from torch import nn
CELL = "trainer = tinytrain.TinyTrainer(model, data, bs=8)\\ntrainer.fit()"
space = {"tinytrain": tinytrain, "model": nn.Linear(4, 1), "data": [torch.ones(4) for _ in range(160)]}
case = gpu_doctor.case(CELL, space)
case.run()
print(case.fix({"num_workers": 2}).cells[0].after.splitlines()[0])
print(case.fix({"batch_size": 16}).cells[0].after.splitlines()[0])
"""
    assert said(tmp_path, program).splitlines() == [
        "trainer = tinytrain.TinyTrainer(model, data, bs=8, workers=2)",
        "trainer = tinytrain.TinyTrainer(model, data, bs=16)",
    ]


TINYTRAIN = """
import torch

class TinyTrainer:
    def __init__(self, model, data, workers=0, bs=4):
        self.model, self.optimizer = model, torch.optim.SGD(model.parameters(), lr=0.1)
        self.loader = torch.utils.data.DataLoader(data, batch_size=bs, num_workers=workers)

    def fit(self):
        for batch in self.loader:
            self.optimizer.zero_grad()
            self.model(batch).sum().backward()
            self.optimizer.step()
"""
