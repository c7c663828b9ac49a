"""Mixed precision written into loops that clip twice, train in functions, or hand their outputs to numpy."""

from __future__ import annotations

import pytest

from tests.support.patched_cells import IMAGES, fixed_loop

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


def test_gradients_are_unscaled_once_before_the_first_clip() -> None:
    fix, cell, _ = fixed_loop(LOOP.format(f"{CLIP.format(0)}\n    {CLIP.format(2)}"), {"amp": "fp16"})
    assert fix.complete and cell.count("unscale_") == 1, str(fix)
    assert cell.index("scaler.unscale_(optimizer)") < cell.index("clip_grad_norm_(model[0]")


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
    "line",
    [
        "kept.extend(output.detach().cpu().numpy())",
        "kept.append(np.asarray(output.detach()))",
        "kept.append((-output.detach()).numpy())",
        "kept.append(output.argmax(1).numpy())",
        "kept.append(loss.item())",
    ],
)
def test_what_reads_the_outputs_is_left_as_it_is_and_reads_float32(line: str) -> None:
    fix, cell, _ = fixed_loop("import numpy as np\n" + LOOP.format(line), {"amp": "bf16"})
    assert fix.complete and line in cell and cell.count(".float()") == 1, str(fix)
    assert (
        '    with torch.autocast("cpu", dtype=torch.bfloat16):\n        output = model(x)\n'
        "    output = output.float()\n    loss = criterion(output, y)\n    loss.backward()\n"
    ) in cell


@pytest.mark.parametrize(
    ("written", "becomes"),
    [
        ("loss = criterion(model(x), y)", "loss = criterion(output.float(), y)"),
        ("loss = criterion(model(x)[:, :], y)", "loss = criterion(output[:, :].float(), y)"),
        ("loss = criterion(model(x).squeeze(), y); n = 1", "loss = criterion(output.float().squeeze(), y); n = 1"),
        (
            "loss: object = criterion(target=y, input=model(x))",
            "loss: object = criterion(target=y, input=output.float())",
        ),
    ],
)
def test_a_forward_within_the_loss_is_taken_out_of_it(written: str, becomes: str) -> None:
    loop = f"for x, y in loader:\n    {written}\n    loss.backward()\n    optimizer.step()\n"
    fix, cell, _ = fixed_loop(loop, {"amp": "bf16"})
    head = '    with torch.autocast("cpu", dtype=torch.bfloat16):\n        output = model(x)\n'
    assert fix.complete and f"{head}    {becomes}\n    loss.backward()" in cell, str(fix)


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        ("criterion(y=y.clone(), x=model(x))", "Assign the output of model on line 4 of this"),
        ("criterion(x=model(x) if len(x) else x, y=y)", "Assign the output of model on line 4"),
        ("sum(criterion(x=model(a[None]), y=b[None]) for a, b in zip(x, y))", "Assign the output of model on line"),
        ("criterion(x=(lambda rows: model(rows))(x), y=y)", "Assign the output of model on line 4"),
        ("criterion(x=forward(x), y=y)", "No call of the model was found in the loop"),
    ],
)
def test_a_forward_that_cannot_be_taken_out_is_left_to_the_hand(loss: str, said: str) -> None:
    own = "def criterion(x, y):\n    return nn.functional.cross_entropy(x, y)\n"
    loop = f"{own}for x, y in loader:\n    loss = {loss}\n    loss.backward()\n    optimizer.step()\n"
    fix, cell, _ = fixed_loop(loop, {"amp": "bf16"}, IMAGES + "forward = model.forward\n")
    assert not fix.complete and cell == loop and said in fix.notes[0], fix.notes
