"""Cures that ask where a loop's names come from: which copies are the batch's, which models are trained."""

from __future__ import annotations

from typing import Any

import pytest

import gpu_doctor
from tests.support.patched_cells import IMAGES, fixed_loop

TEACHER = """teacher = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 3))
for x, y in loader:
    {guess}
    loss = criterion(model(x), guess.softmax(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("guess", ["with torch.no_grad():\n        guess = teacher(x)", "guess = teacher(x).detach()"])
def test_the_model_that_is_trained_and_not_its_teacher(guess: str) -> None:
    cell = TEACHER.format(guess=guess)
    fix, after, _ = fixed_loop(cell, {"channels_last": True})
    assert fix.complete and "\nmodel.to(memory_format" in after and "teacher.to(" not in after
    namespace: dict[str, Any] = {}
    exec(IMAGES + cell, namespace)
    case = gpu_doctor.case(cell, namespace)
    after = case.fix({"compile": True}, [IMAGES]).copied
    assert "\nmodel.forward = torch.compile(" in after and "teacher.forward" not in after


TWO = """generator = nn.Sequential(nn.Linear(10, 192), nn.Unflatten(1, (3, 8, 8)))
optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (generator, model)]
first, second = optimizers
for x, y in loader:
    noise = torch.randn(len(x), 10)
    loss = criterion(model(generator(noise)), y) + criterion(model(x), y)
    loss.backward()
    first.step()
    second.step()
"""


def test_two_trained_models_are_compiled_both_and_laid_out_by_hand() -> None:
    fix, after, _ = fixed_loop(TWO, {"channels_last": True})
    assert not fix.complete and after == TWO and "models are trained (model and generator)" in fix.notes[0]
    namespace: dict[str, Any] = {}
    exec(IMAGES + TWO, namespace)
    after = gpu_doctor.case(TWO, namespace).fix({"compile": True}, [IMAGES]).copied
    assert "compile(model.forward)  # the first steps are slow\ngenerator.forward = torch.compile(" in after


@pytest.mark.parametrize("held", ["[{0}]", "({0},)", "dict(a={0})", "type('Engine', (), {{}})()\nheld.optimizer = {0}"])
def test_an_optimizer_in_an_object_or_container_shows_what_is_trained(held: str) -> None:
    """The other model wants gradients, and is called first."""
    one = "torch.optim.SGD(student.parameters(), lr=0.1)"
    made = f"student = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))\nheld = {held.format(one)}\n"
    loop = "for x, y in loader:\n    guess = model(x).softmax(-1).detach()\n"
    loop += "    loss = criterion(student(x), guess)\n    loss.backward()\n"
    earlier = IMAGES.replace("optimizer = torch", "other = 0 * 1e-3  # torch") + made
    namespace: dict[str, Any] = {}
    exec(earlier + loop, namespace)
    after = gpu_doctor.case(loop, namespace).fix({"compile": True}, [earlier]).copied
    assert "torch.compile(student.forward)" in after and "model.forward" not in after


def test_only_what_comes_from_the_loader_is_laid_out() -> None:
    noise = "for x, y in loader:\n    z = torch.randn(len(x), 3, 8, 8)\n    loss = criterion(model(z), y)\n"
    noise += "    loss.backward()\n    optimizer.step()\n"
    fix, after, _ = fixed_loop(noise, {"channels_last": True})
    assert not fix.complete and after == noise and "is not the loader's batch" in fix.notes[0]
    moved = noise.replace("torch.randn(len(x), 3, 8, 8)", "x.to(device) / 2")
    fix, after, _ = fixed_loop(moved, {"channels_last": True})
    assert fix.complete and "z = z.to(memory_format=torch.channels_last)" in after
    drawn = noise.replace(
        "for x, y in loader:\n", "batches = iter(loader)\nfor _ in range(3):\n    x, y = next(batches)\n"
    )
    fix, after, _ = fixed_loop(drawn.replace("model(z)", "model(x)"), {"channels_last": True})
    assert fix.complete and "x = x.to(memory_format=torch.channels_last)" in after


IN_A_FUNCTION = """def main():
    lossf = nn.CrossEntropyLoss()
    net = {made}.to(device)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(2):
        for x, y in loader:
            opt.zero_grad()
            loss = lossf(net(x), y)
            loss.backward()
            opt.step()
main()
"""


@pytest.mark.parametrize(
    ("made", "line"),
    [
        ("nn.Sequential(*Own())", "net.forward = torch.compile(net.forward)"),
        ("Own()", "net.forward = torch.compile(net.forward)"),
        ("Other()", "net.compile()"),
    ],
)
def test_the_model_that_the_function_of_the_loop_makes(made: str, line: str) -> None:
    own = "class Own(nn.Sequential):\n    def __init__(self):\n"
    own += "        super().__init__(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 3))\n"
    own += "class Other(Own):\n    def forward(self, x): return super().forward(x)\n"
    cell = IN_A_FUNCTION.format(made=made)
    fix, after, setup = fixed_loop(cell, {"channels_last": True}, IMAGES + own)
    assert fix.complete and setup.model is not None and setup.model.channels_last == 1
    namespace: dict[str, Any] = {}
    exec(IMAGES + own + cell, namespace)
    after = gpu_doctor.case(cell, namespace).fix({"compile": True}, [IMAGES + own]).copied
    assert f"    {line}  # the first steps are slow\n    for epoch" in after
