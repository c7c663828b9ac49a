"""Lines that keep graphs across steps, told from those that do not, by the source alone."""

from __future__ import annotations

import pytest

from gpu_doctor.cell.retained_graphs import kept_graphs

LOOP = """%matplotlib inline
for x, y in loader:
    optimizer.zero_grad()
    output = model(x)
    loss = criterion(output, y)
    loss.backward()
    optimizer.step()
    {}
"""


@pytest.mark.parametrize(
    ("line", "cure"),
    [
        ("losses.append(loss)", "losses.append(loss.item())"),
        ("total += loss", "total += loss.item()"),
        ("self.losses.append(2 * loss)", ""),
        ("history['loss'].append(loss)", "history['loss'].append(loss.item())"),
        ("outputs.append(output)", "outputs.append(output.detach())"),
        ("outputs.append(output.cpu())", "outputs.append(output.cpu().detach())"),
        ("p = softmax(output); kept.append(p)", "p = softmax(output); kept.append(p.detach())"),
        ("kept.append((loss, y))", ""),
        ("losses += [loss]", ""),
        ("if step % 10 == 0: losses.append(loss)", "if step % 10 == 0: losses.append(loss.item())"),
    ],
)
def test_what_keeps(line: str, cure: str) -> None:
    (kept,) = kept_graphs(LOOP.format(line))
    assert (kept.line, kept.text, kept.cure) == (8, line, cure)


@pytest.mark.parametrize(
    "line",
    [
        "losses.append(loss.item())",
        "losses.append(loss.detach().cpu())",
        "losses.append(float(loss))",
        "total += loss.item()",
        "loss = loss.item(); losses.append(loss)",
        "labels.append(y)",
        "seen += y.size(0)",
        "correct += (output.argmax(1) == y).sum()",
        "print(f'{loss}')",
        "metrics.update(output, y)",
        "last['loss'] = loss",
        "losses = losses[-10:] + [loss]",
        "losses = [loss]",
        "log(loss)",
        "shapes.append(output.shape)",
    ],
)
def test_what_does_not(line: str) -> None:
    assert kept_graphs(LOOP.format(line)) == ()


def test_a_validation_that_builds_graphs_and_one_that_does_not() -> None:
    validation = LOOP.format("pass") + "for x, y in held_out:\n    found.append(criterion(model(x), y))\n"
    assert [one.line for one in kept_graphs(validation)] == [10]
    inside = validation.replace("    found", "    with torch.no_grad():\n        found")
    assert kept_graphs(inside) == ()
    outside = LOOP.format("pass") + "with torch.inference_mode():\n    for x, y in v:\n        found.append(model(x))\n"
    assert kept_graphs(outside) == ()


def test_numbers_about_the_data_carry_no_graph() -> None:
    source = """
for step in range(100):
    n = random.randint(5, 120)
    x = torch.randint(0, 1000, (16, n))
    hidden = lstm(emb(x))
    loss = nn.functional.cross_entropy(hidden, x.flatten())
    loss.backward()
    log.append({"loss": loss.item(), "n": n, "step": step})
    inputs.append(x)
    {}
"""
    assert kept_graphs(source.replace("{}", "")) == ()
    assert [one.value for one in kept_graphs(source.replace("{}", "states.append(hidden)"))] == ["hidden"]


def test_what_a_model_makes_of_itself_in_the_line_that_keeps_it() -> None:
    """Not a value that went through backward, but made by the same model."""
    nested = (
        "for x, y in loader:\n    loss = criterion(net(x), shifted(y))\n    loss.backward()\n    history.append({})\n"
    )
    assert [one.line for one in kept_graphs(nested.format("net(x).mean()"))] == [4]
    assert kept_graphs(nested.format("net(x).mean().detach()")) == kept_graphs(nested.format("shifted(y)")) == ()


def test_a_sum_over_parts_of_one_step_is_no_keeping() -> None:
    source = """
for x, y in loader:
    loss, parts = 0, []
    for chunk in x.chunk(4):
        parts.append(model(chunk))
        loss += criterion(parts[-1], y)
    loss.backward()
"""
    assert kept_graphs(source) == ()


SEQUENCES = """
model.train()
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        {}
        loss = loss / 5
        loss.backward()
        optimizer.step()
        for t in range(3):
            history.append(model(x))
"""
OVER_TIME = "loss, outputs = 0, []\n        for t in range(5):\n            out = model(x[:, t])\n"
OVER_TIME += "            outputs.append(out)\n            loss += criterion(out, y[:, t])"


def test_a_sum_over_time_begins_anew_in_each_step() -> None:
    """What lives longer than the step is found all the same, in the inner loop too."""
    found = kept_graphs(SEQUENCES.format(OVER_TIME))
    assert [one.text for one in found] == ["history.append(model(x))"]
    assert [one.text for one in kept_graphs(SEQUENCES.format(OVER_TIME.replace(", outputs = 0, []", " = 0")))] == [
        "outputs.append(out)",
        "history.append(model(x))",
    ]


def test_a_validation_in_each_epoch_keeps_graphs_though_its_list_begins_anew() -> None:
    source = """
for epoch in range(2):
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
    found = []
    for x, y in held_out:
        found.append(criterion(model(x), y))
"""
    assert [one.text for one in kept_graphs(source)] == ["found.append(criterion(model(x), y))"]


def test_a_step_in_a_function_and_a_scaler() -> None:
    source = """
def step(x):
    loss = model(x).mean()
    scaler.scale(loss).backward()
    return loss
for x in loader:
    loss = step(x)
    losses.append(loss)
"""
    assert [one.line for one in kept_graphs(source)] == [8]


@pytest.mark.parametrize("source", ["", "for x in", "\x00", "1 +\n  2"])
def test_what_is_no_python_says_nothing(source: str) -> None:
    assert kept_graphs(source) == ()
