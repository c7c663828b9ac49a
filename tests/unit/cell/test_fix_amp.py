"""torch's recipe for mixed precision written into loops of many shapes, and the shapes that it does not fit."""

from __future__ import annotations

import pytest

from tests.support.patched_cells import IMAGES, TRAIN, fixed_loop

LOOP = """kept = []
for step, (x, y) in enumerate(loader):
    output = model(x)
    loss = criterion(output, y)
    loss.backward()
    {}
    optimizer.step()
    optimizer.zero_grad()
"""
CLIP = "nn.utils.clip_grad_norm_(model[{}].parameters(), 1.0)"
HEAD = 'with torch.autocast(device_type="cpu", dtype=torch.bfloat16):'


def test_forward_and_loss_stand_in_one_autocast_and_all_else_outside() -> None:
    fix, cell, setup = fixed_loop(TRAIN % "", {"amp": "bf16"})
    lines = cell.splitlines()
    at = lines.index(f"        {HEAD}")
    assert fix.complete and setup.autocast == "bfloat16"
    assert lines[at + 1].startswith("            output = model(") and "over lines'''" in lines
    assert "            loss = criterion(output, targets)" in lines and "        loss.backward()" in lines


def test_gradients_are_unscaled_once_before_the_first_clip() -> None:
    fix, cell, _ = fixed_loop(LOOP.format(f"{CLIP.format(0)}\n    {CLIP.format(2)}"), {"amp": "fp16"})
    assert fix.complete and cell.count("unscale_") == 1, str(fix)
    assert cell.index("scaler.unscale_(optimizer)") < cell.index("clip_grad_norm_(model[0]")
    assert cell.index("scaler.step(optimizer)") < cell.index("scaler.update()")


@pytest.mark.parametrize(
    ("lines", "complete"),
    [
        (f"if step:\n        {CLIP.format(0)}", True),
        (f"if step:\n        {CLIP.format(0)}\n    {CLIP.format(2)}", False),
    ],
)
def test_clips_in_different_blocks_are_left_to_the_hand(lines: str, complete: bool) -> None:
    fix, cell, _ = fixed_loop(LOOP.format(lines), {"amp": "fp16"})
    assert fix.complete is complete, str(fix)
    assert complete or ("clips gradients outside the block" in fix.notes[0] and cell == LOOP.format(lines))


def test_a_clip_in_every_turn_of_an_accumulation_is_left_to_the_hand() -> None:
    loop = LOOP.format(CLIP.format(0)).replace("    optimizer.step()\n", "    if step % 2:\n        optimizer.step()\n")
    fix, cell, _ = fixed_loop(loop, {"amp": "fp16"})
    assert not fix.complete and cell == loop and "clips gradients outside the block" in fix.notes[0]


IN_A_FUNCTION = """def plain(function):
    return function

@plain
def train_one_epoch(epoch):
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
for epoch in range(3):
    train_one_epoch(epoch)
"""


def test_the_scaler_is_made_once_and_not_in_every_epoch() -> None:
    fix, cell, _ = fixed_loop(IN_A_FUNCTION, {"amp": "fp16"})
    assert fix.complete and '\nscaler = torch.amp.GradScaler("cpu")\n@plain\ndef train_one_epoch' in cell
    inside = "if True:\n" + "".join(f"    {line}\n" for line in IN_A_FUNCTION.splitlines())
    fix, cell, _ = fixed_loop(inside, {"amp": "fp16"})
    assert not fix.complete and cell == inside and "create the GradScaler before it" in fix.notes[0]


def test_the_scaler_has_a_name_that_no_cell_uses() -> None:
    earlier = IMAGES + "scaler = 'of scikit-learn'\n"
    fix, cell, _ = fixed_loop(LOOP.format("pass"), {"amp": "fp16"}, earlier)
    assert fix.complete and "grad_scaler = torch.amp.GradScaler" in cell and "grad_scaler.scale(loss)" in cell


@pytest.mark.parametrize(
    ("body", "becomes"),
    [
        ("loss = criterion(model(x), y)\nloss.backward()", "HEAD\n    loss = criterion(model(x), y)\nloss.backward()"),
        ("criterion(model(x), y).backward()", "HEAD\n    loss = criterion(model(x), y)\nloss.backward()"),
        (
            "x = x.to(device).float()\nout = model(x)\n(criterion(out, y) / 2).backward()",
            "x = x.to(device).float()\nHEAD\n    out = model(x)\n    loss = criterion(out, y) / 2\n(loss).backward()",
        ),
        (
            "loss = criterion(model(x), y); n = 1\n(loss / 2).backward()",
            "HEAD\n    loss = criterion(model(x), y); n = 1\n(loss / 2).backward()",
        ),
        (
            "h = model[0](x)\nout = model[2](h.flatten(1))\nloss = criterion(out, y)\n"
            "loss.backward(retain_graph=False)",
            "HEAD\n    h = model[0](x)\n    out = model[2](h.flatten(1))\n    loss = criterion(out, y)\n"
            "loss.backward(retain_graph=False)",
        ),
        (
            "out = model(x)\nloss = out.logsumexp(1).mean()\nif True:\n    loss.backward()",
            "HEAD\n    out = model(x)\n    loss = out.logsumexp(1).mean()\nif True:\n    loss.backward()",
        ),
        (
            "a = criterion(model(x), y)\na.backward()\nb = criterion(model(x), y)\nb.backward()",
            "HEAD\n    a = criterion(model(x), y)\na.backward()\nHEAD\n    b = criterion(model(x), y)\nb.backward()",
        ),
        (
            "if True:\n    out = model(x)\nelse:\n    out = x\nloss = criterion(out, y)\nloss.backward()",
            "HEAD\n    if True:\n        out = model(x)\n    else:\n        out = x\n    loss = criterion(out, y)\n"
            "loss.backward()",
        ),
    ],
)
def test_shapes_of_loops(body: str, becomes: str) -> None:
    def loop(lines: str) -> str:
        inside = "".join(f"    {line}\n" for line in lines.replace("HEAD", HEAD).splitlines())
        return f"for x, y in loader:\n{inside}    optimizer.step()\n    optimizer.zero_grad()\n"

    fix, cell, setup = fixed_loop(loop(body), {"amp": "bf16"})
    assert fix.complete and cell == loop(becomes), str(fix)
    assert setup.autocast == "bfloat16"


ONCE = "criterion(model(x), y).backward()"
HEADLESS = f"def go(x, y):\n    {ONCE}\nfor x, y in loader:\n    go(x, y)\n"
TURN = "for x, y in loader:\n    {}\n    optimizer.step()\n"


@pytest.mark.parametrize(
    ("amp", "loop", "said"),
    [
        ("bf16", TURN.format("loss = criterion(model(x), y); loss.backward()"), "more than one statement"),
        (
            "bf16",
            TURN.format("for _ in range(1): loss = criterion(model(x), y); loss.backward()"),
            "more than one statement",
        ),
        ("bf16", TURN.format("n = [criterion(model(x), y).backward()]"), "Assign the loss to a variable"),
        ("bf16", TURN.format("torch.autograd.backward(criterion(model(x), y))"), "does not compute the loss"),
        ("fp16", f"for x, y in loader:\n    {ONCE}\n    {ONCE}\n", "one optimizer.step()"),
        ("fp16", HEADLESS, "No loop that calls"),
    ],
)
def test_shapes_that_are_left_to_the_hand(amp: str, loop: str, said: str) -> None:
    fix, cell, _ = fixed_loop(loop, {"amp": amp})
    assert not fix.complete and not fix.cells and cell == loop and said in " ".join(fix.notes), fix.notes
    assert "torch.autocast" in fix.paste and "backward()" in fix.paste
