"""What a step computes for its loss from data at hand is no batch in the making; what gets data is one."""

from __future__ import annotations

import pytest

from gpu_doctor.cell import batch_lines, target_lines
from gpu_doctor.recording import LineCost

END = "    loss = criterion(out, y)\n    loss.backward()\n    opt.step()\n"
ASSIGN = "def overlap(a, b):\n    return (a - b).item()\ndef assign(rows):\n    return [overlap(a, 1) for a in rows]\n"


def told(source: str) -> tuple[set[int], set[int]]:
    """Lines that make the batch, and those that compute targets."""
    costs = [
        LineCost("<cell>", at, "f", text.strip(), "other", 0.1)
        for at, text in enumerate(source.splitlines(), 1)
        if text.strip()
    ]
    found = (lines(source, costs, ("net",)) for lines in (batch_lines, target_lines))
    batch, targets = ({one.line for one in lines} for lines in found)
    return batch, targets


def test_targets_of_rows_that_are_kept() -> None:
    source = (
        ASSIGN + "for i in range(9):\n    ids = draw(i)\n    y = assign(boxes[ids])\n    out = net(images[ids])\n" + END
    )
    assert told(source) == ({5, 6}, {1, 2, 3, 4, 7})


def test_targets_of_a_batch_that_the_loop_pulls() -> None:
    source = ASSIGN + "for x, rows in data:\n    y = assign(rows)\n    y = stack(y)\n    out = net(x)\n" + END
    batch, targets = told(source)
    assert targets == {1, 2, 3, 4, 6, 7} and batch == {5}


@pytest.mark.parametrize(
    "label",
    ["label(i)", "load_label(files[i])", "tree(ET.parse(files[i]))", "read(files[i])", "next(labels)", "q.get()"],
)
def test_labels_that_are_got_are_a_part_of_the_batch(label: str) -> None:
    source = f"for i in range(9):\n    x = images[i]\n    y = {label}\n    out = net(x)\n" + END
    assert told(source) == ({1, 2, 3}, set())


def test_a_function_that_reads_further_down() -> None:
    source = ASSIGN.replace("(a - b).item()", "np.load(a)")
    assert told(source + "for i in range(9):\n    y = assign(files[i])\n    out = net(images[i])\n" + END)[1] == set()


def test_what_the_model_is_fed_with_is_the_batch() -> None:
    source = ASSIGN + "for i in range(9):\n    x = assign(boxes[i])\n    out = net(x)\n    y = x[0]\n" + END
    batch, targets = told(source)
    assert {1, 2, 3, 4, 6} <= batch and not targets & batch


def test_a_function_that_both_call_makes_the_batch() -> None:
    source = "def tensor(v):\n    return v\nfor i in range(9):\n    x = tensor(rows[i])\n    y = tensor(tags[i])\n"
    batch, targets = told(source + "    out = net(x)\n" + END)
    assert batch == {1, 2, 3, 4} and targets == {5}


def test_targets_of_the_models_output_are_neither() -> None:
    source = ASSIGN + "for x, rows in data:\n    out = net(x)\n    y = assign(out)\n" + END
    assert told(source) == ({5}, set())
