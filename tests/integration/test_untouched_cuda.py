"""In a fresh process: what is imported, a run, a trial's copies and the check-up leave CUDA to the user's code."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import os
import torch
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "gpu_doctor")
import gpu_doctor
print(gpu_doctor.check())
code = '''
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(20):
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
'''
with gpu_doctor.watch():
    exec(code)
case = gpu_doctor.case(code, {"torch": torch})
case.run()
case.trial({"threads": 1}, steps=5, seconds=2)
assert not torch.cuda.is_initialized()
child = os.fork()
if not child:
    os._exit(torch.cuda._is_in_bad_fork())  # true where a driver was asked for its devices before the fork
assert os.waitpid(child, 0)[1] == 0
"""


def test_cuda_is_neither_initialised_nor_asked_for_its_devices() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=120)
