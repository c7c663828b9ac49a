"""What panels leave in a kernel and weigh on the wire: a cell that is run again keeps one panel, a light one."""

from __future__ import annotations

import pytest

from tests.support.real_kernel import VIEW, Kernel
from tests.support.real_kernel import kernel as kernel

pytestmark = pytest.mark.timeout(300)

SETUP = """
import torch
%load_ext gpu_doctor
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
LOOP = """%%gpudoctor
for _ in range(20):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
"""


def widgets(kernel: Kernel) -> list[str]:
    return sorted(kernel.open.values())


def test_a_cell_run_again_keeps_one_panel_and_its_layout(kernel: Kernel) -> None:
    kernel.run(SETUP)
    kernel.run(LOOP, cell="a")
    first = widgets(kernel)
    assert first == ["LayoutModel", "WidgetModel", VIEW], "the panel, its layout, what all panels share"
    for _ in range(3):
        kernel.run(LOOP, cell="a")
    assert widgets(kernel) == first
    kernel.run(LOOP, cell="b")
    assert widgets(kernel).count(VIEW) == 2
    kernel.run(LOOP, cell="c", deleted=["a", "b"])
    assert widgets(kernel) == first


def test_a_later_run_sends_little_before_its_first_row(kernel: Kernel) -> None:
    kernel.run(SETUP)
    kernel.run(LOOP, cell="a")
    assert sum(size for _, size in kernel.weights) > 1_000_000, "BokehJS has travelled"
    kernel.weights.clear()
    kernel.run(LOOP, cell="a")
    kinds = [kind for kind, _ in kernel.weights]
    assert kinds[:2] == ["comm_open", "comm_open"]
    before = sum(size for _, size in kernel.weights[: kinds.index("comm_msg") + 2])
    assert before <= 110_000, "the panel with its script and style, its first state, its first message"
    assert sum(size for _, size in kernel.weights) <= 160_000, f"the whole run: {kernel.weights}"
