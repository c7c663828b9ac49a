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


def timed(warm_s: float, seconds: float, view: bool) -> str:
    """A loop as fast as it can, which prints microseconds of a step after a while: on the wall, of the CPU."""
    return f"""%%gpudoctor{"" if view else " --no-view"}
begin, done, lap = time.perf_counter(), 0, None
while lap is None or time.perf_counter() - lap[0] < {seconds}:
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        done += 1
        if lap is None and time.perf_counter() - begin > {warm_s}:
            lap, done = (time.perf_counter(), time.process_time()), 0
        elif lap is not None and done % 64 == 0 and time.perf_counter() - lap[0] > {seconds}:
            break
print("spent", 1e6 * (time.perf_counter() - lap[0]) / done, 1e6 * (time.process_time() - lap[1]) / done)
"""
