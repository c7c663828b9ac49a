"""What is patched while a plain loop runs on a CPU: few places, each of them with its reason in the documentation."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.support.repository import ROOT

MOST = 25
PAGE = ROOT / "docs" / "reference" / "patches.md"
SCRIPT = '''
import json
import torch
import gpu_doctor
from gpu_doctor.capture import patching

names = {"patching": patching, "seen": [], "net": torch.nn.Linear(4, 2)}
names["optimizer"] = torch.optim.SGD(names["net"].parameters(), lr=0.1)
names["loader"] = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.rand(64, 4)), batch_size=8)
cell = """
for (x,) in loader:
    optimizer.zero_grad()
    net(x).sum().backward()
    optimizer.step()
    seen.append(patching.active())
"""
gpu_doctor.case(cell, names).run()
print(json.dumps([names["seen"][-1], patching.active()]))
'''
"""In a process of its own: libraries that other tests import bring optimizers of their own, which are patched too."""


def test_each_place_that_is_patched_is_in_the_documentation() -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    there, left = json.loads(ran.stdout)
    page = PAGE.read_text("utf-8")
    assert not [label for label in there if f"`{label.removesuffix(' Linear')}`" not in page]
    assert 10 < len(there) <= MOST and not left
