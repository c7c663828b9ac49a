"""Top-level `await` in a diagnosed cell, in a real kernel: what earlier cells made on the kernel's loop goes on."""

from __future__ import annotations

import time

import pytest

from tests.support.real_kernel import Kernel
from tests.support.real_kernel import kernel as kernel

pytestmark = pytest.mark.timeout(300)

SETUP = """
import asyncio, torch
%load_ext gpu_doctor
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
queue = asyncio.Queue(maxsize=2)
lock = asyncio.Lock()
await lock.acquire()

async def produce():
    for number in range(40):
        await queue.put(torch.full((8, 4), float(number)))
    lock.release()

producer = asyncio.create_task(produce())
"""
LOOP = """%%gpudoctor --no-view
seen = []
for _ in range(40):
    x = await queue.get()
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
    seen.append(x[0, 0].item())
async with lock:
    pass
"""
WAITS = """%%gpudoctor --no-view
for _ in range(10):
    optimizer.zero_grad()
    model(torch.ones(8, 4)).sum().backward()
    optimizer.step()
print("waits", flush=True)
await asyncio.Event().wait()
"""
ON_ERROR = """
import traceback

def tell(shell, kind, error, frames, tb_offset=None):
    print(kind.__name__, [one.line for one in traceback.extract_tb(frames)])

get_ipython().set_custom_exc((KeyboardInterrupt,), tell)
"""


def test_a_queue_and_a_lock_of_an_earlier_cell_go_on(kernel: Kernel) -> None:
    kernel.run(SETUP)
    kernel.run(LOOP)
    assert kernel.run("print(seen == [float(one) for one in range(40)], producer.done())").split() == ["True", "True"]
    assert "completed 40" in kernel.run(
        "import gpu_doctor; run = gpu_doctor.last_case().recordings[-1]; print(run.outcome, int(run.steps.count.sum()))"
    )


def test_an_interrupt_ends_a_cell_that_waits_and_the_loop_goes_on(kernel: Kernel) -> None:
    kernel.run(SETUP)
    kernel.run(ON_ERROR)
    begun = kernel.client.execute(WAITS)
    kernel.listen(lambda: "waits" in kernel.printed.get(begun, ""), "It did not begin to wait")
    time.sleep(1.0)  # it has said so before it waits
    kernel.manager.interrupt_kernel()
    kernel.listen(lambda: begun in kernel.done, "It was not interrupted")
    assert "KeyboardInterrupt" in kernel.printed[begun] and "await asyncio.Event().wait()" in kernel.printed[begun]
    kernel.run(LOOP)
    assert kernel.run("print(len(seen), producer.done())").split() == ["40", "True"]
