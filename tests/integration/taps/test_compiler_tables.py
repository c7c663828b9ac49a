"""In a fresh process: a first run in which torch imports its compiler is freed, and the compiler knows torch's own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.repository import ROOT

CODE = """
import gc, sys, weakref
import torch
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import listening

def cell(compiled):
    net = torch.nn.Sequential(torch.nn.Linear(4, 1))
    run = torch.compile(net, backend="eager") if compiled else net
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        run(torch.rand(2, 4)).sum().backward()
        optimizer.step()

assert "torch._dynamo" not in sys.modules
recorder = Recorder()
ref = weakref.ref(recorder)
with listening(recorder, {}, accelerated=False):
    cell(sys.argv[1] == "compiled")
recorder.close()
del recorder
gc.collect()
rules = sys.modules["torch._dynamo.trace_rules"].get_torch_obj_rule_map()
print(ref() is None, torch.autograd.backward in rules, torch.autograd.grad in rules)
"""


@pytest.mark.parametrize("how", ["plain", "compiled"])
def test_nothing_of_a_first_run_stays_in_the_compilers_tables(how: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", CODE, how]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["True", "True", "True"], done.stderr
