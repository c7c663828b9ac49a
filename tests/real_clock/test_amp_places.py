"""Mixed precision stands in the same places in a trial and in the cell that is pasted: the same losses, bit for bit."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any, Final

import pytest
import torch

from gpu_doctor.cell import Fix
from gpu_doctor.recording import Setup
from gpu_doctor.trials.cell_code import fix_of
from gpu_doctor.trials.knobs import KNOBS
from gpu_doctor.trials.knobs.amp.autocast import DTYPES, mixed_precision
from gpu_doctor.trials.knobs.knob import TrialScope
from tests.support.leftovers import one_thread as one_thread

assert KNOBS  # the knobs are imported here, before a test's time is counted

EARLIER: Final = """
from dataclasses import dataclass
from types import SimpleNamespace
import torch
from torch import nn
torch.manual_seed(0)
rows = [(torch.randn(16, 8), (torch.rand(16, 1) > 0.5).float()) for _ in range(6)]
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
    def forward(self, x, y=None):
        out = self.b(torch.relu(self.a(x)))
        return out if y is None else (out, nn.functional.binary_cross_entropy_with_logits(out, y))
@dataclass
class Out:
    logits: torch.Tensor
    loss: torch.Tensor
    hidden: tuple = ()
class Boxed(Net):
    def forward(self, x, y): return Out(*super().forward(x, y), (x,))
class Plain(Net):
    def forward(self, x, y): return SimpleNamespace(**vars(Out(*super().forward(x, y))))
net, boxed, plain = Net(), Boxed(), Plain()
opt = torch.optim.Adam([*net.parameters(), *boxed.parameters(), *plain.parameters()], lr=0.02)
losses = []
"""
STEP: Final = "    opt.zero_grad()\n    loss.backward()\n    opt.step()\n    losses.append(loss.item())\n"
DEEPER: Final = "".join(f"    {line}\n" for line in STEP.splitlines())
LOOPS: Final = {
    "plain": "for x, y in rows:\n    out = net(x)\n    loss = ((out - y) ** 2).mean()\n" + STEP,
    "products in the loss": "for x, y in rows:\n    out = net(x)\n    loss = (out @ out.T).square().mean()\n" + STEP,
    "a sigmoid and BCELoss": "for x, y in rows:\n    loss = nn.BCELoss()(net(x).sigmoid(), y)\n" + STEP,
    "logits": "criterion = nn.BCEWithLogitsLoss()\nfor x, y in rows:\n    loss = criterion(net(x), y)\n" + STEP,
    "called twice": "for x, y in rows:\n    a = net(x)\n    b = net(x * 2)\n    loss = (a * b - y).square().mean()\n"
    + STEP,
    "twice in one statement": "for x, y in rows:\n    loss = (net(x) * net(-x) - y).square().mean()\n" + STEP,
    "one model in another": (
        "pre = nn.Linear(8, 8)\nboth = torch.optim.SGD([*pre.parameters(), *net.parameters()], 0.1)\n"
        "for x, y in rows:\n    out = net(pre(x))\n    loss = (out - y).square().mean()\n" + STEP.replace("opt", "both")
    ),
    "the loss in the model": "for x, y in rows:\n    out, loss = net(x, y)\n    out.detach().numpy()\n" + STEP,
    "the loss in a field": "for x, y in rows:\n    out = boxed(x, y)\n    loss = out.loss * out.logits.mean().exp()\n"
    + STEP,
    "an object that the trial does not open": (
        "for x, y in rows:\n    out = plain(x, y)\n    loss = out.loss * out.logits.mean().exp()\n" + STEP
    ),
    "a field at once": "for x, y in rows:\n    loss = boxed(x, y).loss\n" + STEP,
    "accumulation": (
        "for step, (x, y) in enumerate(rows):\n    out = net(x)\n    loss = (out - y).square().mean() / 2\n"
        "    loss.backward()\n    losses.append(loss.item())\n    if step % 2:\n        opt.step(); opt.zero_grad()\n"
    ),
    "clipping": (
        "for x, y in rows:\n    out = net(x)\n    loss = (out - y).square().mean()\n    opt.zero_grad()\n"
        "    loss.backward()\n    nn.utils.clip_grad_norm_(net.parameters(), 0.1)\n    opt.step()\n"
        "    losses.append(loss.item())\n"
    ),
    "an evaluation": (
        "for epoch in range(2):\n    for x, y in rows:\n        out = net(x)\n"
        "        loss = out.sub(y).square().mean()\n"
        + DEEPER
        + "    with torch.no_grad():\n        for x, y in rows:\n"
        "            losses.append(net(x).square().mean().item())\n"
        "    for group in opt.param_groups:\n        group['lr'] *= losses[-1]\n"
    ),
    "a teacher": (
        "teacher = Net().requires_grad_(False)\nfor x, y in rows:\n    wanted = teacher(x)\n    out = net(x)\n"
        "    loss = (out - wanted).square().mean()\n" + STEP
    ),
    "a function": (
        "def train(model, data):\n    for x, y in data:\n        out = model(x)\n"
        "        loss = out.sub(y).square().mean()\n" + DEEPER + "train(net, rows)\n"
    ),
    "a model that a function makes": (
        "def train():\n    lossf = nn.MSELoss()\n    model = Net().to('cpu')\n"
        "    opt = torch.optim.SGD(model.parameters(), lr=0.1)\n    for x, y in rows:\n        out = model(x)\n"
        "        loss = lossf(out, y)\n" + DEEPER + "train()\n"
    ),
    "a step in a function": (
        "def loss_of(x, y):\n    out = net(x)\n    return (out - y).square().mean()\n"
        "for x, y in rows:\n    loss = loss_of(x, y)\n" + STEP
    ),
}


def ran(cell: str, amp: str = "", pasted: bool = False) -> tuple[dict[str, Any], Fix, int]:
    """The namespace after a cell, the fix of it, and how many steps found no scale; by settings or as pasted."""
    skipped, fix = 0, Fix()
    if pasted:
        once, *_ = ran(cell)  # what a run as written leaves, by which names are known
        setup = Setup(optimizers=("Adam",), device="cpu", dtype="float32")
        fix = fix_of(cell, cell, once, setup, {"amp": amp}, [EARLIER])
        cell = fix.cells[0].after if fix.cells else cell
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(EARLIER, namespace)
    turned = mixed_precision(DTYPES[amp], TrialScope(namespace)) if amp and not pasted else nullcontext()
    with turned as scaling:
        exec(cell, namespace)
        skipped = scaling.skipped if scaling is not None else 0
    return namespace, fix, skipped


@pytest.mark.parametrize("amp", ["bf16", "fp16"])
@pytest.mark.parametrize("name", LOOPS)
def test_the_losses_of_the_trial_are_those_of_the_pasted_cell(name: str, amp: str) -> None:
    tried, _, skipped = ran(LOOPS[name], amp)
    pasted, fix, _ = ran(LOOPS[name], amp, pasted=True)
    plain, *_ = ran(LOOPS[name])
    assert fix.complete, str(fix)
    assert tried["losses"] == pasted["losses"] and all(map(math.isfinite, pasted["losses"])), str(fix)
    assert tried["losses"] != plain["losses"], "it was computed in half precision"
    for ours, theirs in zip(
        tried["opt"].param_groups[0]["params"], pasted["opt"].param_groups[0]["params"], strict=True
    ):
        assert torch.equal(ours, theirs)
    if amp == "fp16":
        scale = next(one for key, one in pasted.items() if type(one).__name__ == "GradScaler").get_scale()
        assert scale == 65536.0 / 2**skipped


def test_what_a_tuple_holds_that_is_not_known_is_left_to_the_hand() -> None:
    cell = (
        "def train(model):\n    for x, y in rows:\n        out, loss = model(x, y)\n        print(out)\n"
        "        loss.backward()\n        opt.step()\ntrain(net)\n"
    )
    _, fix, _ = ran(cell, "bf16", pasted=True)
    assert not fix.complete and len(fix.notes) == 1 and "What out holds on line 3" in fix.notes[0]
    _, fix, _ = ran(cell.replace("print(out)", "pass"), "bf16", pasted=True)
    assert fix.complete and "        loss = loss.float()\n" in fix.cells[0].after and "out = out" not in str(fix)


def test_an_object_that_is_handed_on_whole_is_left_to_the_hand() -> None:
    cell = "for x, y in rows:\n    out = boxed(x, y)\n    str(out)\n    loss = out.loss\n" + STEP
    _, fix, _ = ran(cell, "bf16", pasted=True)
    assert not fix.complete and fix.notes[0].startswith("out on line 2 of this cell is no tensor")
    _, fix, _ = ran(cell.replace("str(out)", "out.hidden"), "bf16", pasted=True)
    assert not fix.complete and fix.notes[0].startswith("out.hidden on line 3 of this cell is no")
