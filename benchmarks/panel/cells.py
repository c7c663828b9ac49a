"""The cells that are run."""

from __future__ import annotations

from typing import Final

from tests.support.repository import ROOT

SETUP: Final = f"""
import sys, time
sys.path.insert(0, {str(ROOT)!r})
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
%load_ext gpu_doctor
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
loader = DataLoader(TensorDataset(torch.randn(8192, 8)), batch_size=2)
weight = torch.nn.Parameter(torch.ones(1))
weight.grad = torch.zeros(1)
one = torch.optim.SGD([weight], lr=1e-4, foreach=False)
"""


def some_steps(number: int) -> str:
    """A cell of a few steps."""
    return f"""%%gpudoctor
for _ in range({number}):
    optimizer.zero_grad()
    model(torch.randn(2, 8)).sum().backward()
    optimizer.step()
"""


def paced(rate: float, seconds: float, view: bool = True) -> str:
    """A loop of so many steps a second, as far as the machine can; it prints how many they were."""
    return f"""%%gpudoctor{"" if view else " --no-view"}
begin, done = time.perf_counter(), 0
while time.perf_counter() - begin < {seconds}:
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        done += 1
        now = time.perf_counter() - begin
        if now > {seconds}:
            break
        if done / {rate} > now:
            time.sleep(done / {rate} - now)
print("rate", done / (time.perf_counter() - begin))
"""


def many(steps: int) -> str:
    """A loop of so many of the cheapest steps that there are; it prints how many came in a second."""
    return f"""%%gpudoctor
begin = time.perf_counter()
for _ in range({steps}):
    one.step()
print("rate", {steps} / (time.perf_counter() - begin))
"""


LOOKS: Final = """
from gpu_doctor.notebook.live_view import Dashboard
looks, slices, pushed = [], [], Dashboard.push
def push(self, wait=False):
    begin, spent = time.perf_counter(), time.thread_time()
    pushed(self, wait)
    looks.append((begin, time.perf_counter(), time.thread_time() - spent))
Dashboard.push = push
"""
"""Notes when the view looks, and what that takes of the CPU."""


def sliced(seconds: float) -> str:
    """A loop as fast as it can, which notes the wall, its thread's CPU and its steps every few milliseconds."""
    return f"""%%gpudoctor
del looks[:], slices[:]
begin, done = time.perf_counter(), 0
while time.perf_counter() - begin < {seconds}:
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        done += 1
        if done % 8 == 0:
            slices.append((time.perf_counter(), time.thread_time(), done))
            if slices[-1][0] - begin > {seconds}:
                break
"""


CLOCKS: Final = """
clocks = [[0.0, 0.0]]
def begins(info):
    clocks.append([time.perf_counter(), time.thread_time()])
def ends(result):
    clocks[-1] = [time.perf_counter() - clocks[-1][0], time.thread_time() - clocks[-1][1]]
get_ipython().events.register("pre_run_cell", begins)
get_ipython().events.register("post_run_cell", ends)
"""
"""Notes wall and CPU seconds of each later cell, the newest last; that of a cell that runs has its begin."""
