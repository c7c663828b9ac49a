"""Which lines of a cell make its batches is read off the text, and nothing is named where the text does not tell."""

from __future__ import annotations

import pytest

from gpu_doctor.cell.batch_source import batch_lines
from gpu_doctor.recording import LineCost

TRAIN = "    loss = net(x).square().mean()\n    loss.backward()\n    opt.step()\n"


def made(source: str, *forward: int, models: tuple[str, ...] = ("net",)) -> set[int]:
    """Lines of the source that are found to make batches when each of them costs something."""
    costs = [
        LineCost("<cell>", at, "f", text.strip(), "forward" if at in forward else "other", 0.1)
        for at, text in enumerate(source.splitlines(), 1)
        if text.strip()
    ]
    return {one.line for one in batch_lines(source, costs, models)}


def test_a_generator_and_what_it_calls() -> None:
    source = (
        "def decode(i):\n    return i\n"
        "def batches():\n    for i in range(9):\n        yield decode(i)\n"
        "def plot(v):\n    print(v)\n"
        "for x in batches():\n" + TRAIN + "    plot(loss)\n"
    )
    assert made(source) == {1, 2, 3, 4, 5, 8}


def test_statements_in_the_loop() -> None:
    source = (
        "for step in range(9):\n"
        "    rows = []\n"
        "    for j in range(8):\n        rows.append(read(j))\n"
        "    x = stack(rows)\n" + TRAIN + "    history.append(loss.item())\n    metric = slow(step)\n"
    )
    assert made(source) == {2, 4, 5}


def test_labels_are_a_part_of_the_batch() -> None:
    source = (
        "for step in range(9):\n    x = X[step]\n    y = label(step)\n    out = net(x)\n    loss = criterion(out, y)\n"
        "    opt.zero_grad()\n    loss.backward()\n    opt.step()\n"
    )
    assert made(source) == {1, 2, 3}


def test_an_object_that_is_pulled_from() -> None:
    source = (
        "class Stream:\n    def __next__(self):\n        return self.make()\n    def make(self):\n        return 1\n"
        "def step_on(x):\n    loss = net(x).mean()\n    loss.backward()\n"
        "it = iter(Stream())\n"
        "for step in range(9):\n    x = next(it)\n    step_on(x)\n"
    )
    assert made(source) == {1, 2, 3, 4, 5, 11}


def test_a_generator_that_is_handed_to_the_training_function() -> None:
    source = (
        "def stream():\n    yield 1\n"
        "def fit(model, data, log):\n    for x in data:\n        loss = model(x).mean()\n"
        "        loss.backward()\n        log(loss)\n"
        "def log(v):\n    print(v)\n"
        "gen = stream()\nfit(net, gen, log)\n"
    )
    assert made(source) & {1, 2} == {1, 2} and not made(source) & {5, 6, 7, 8, 9}


def test_a_model_that_only_its_forward_shows() -> None:
    source = "for i in range(9):\n    x = make(i)\n    y = thing.go(x)\n    y.sum().backward()\n"
    assert made(source, models=()) == set()
    assert made(source, 3, models=()) == {1, 2}


def test_a_batch_that_depends_on_the_models_output_is_not_a_loaders_to_make() -> None:
    source = "for i in range(9):\n    a = net(s)\n    loss = a.mean()\n    loss.backward()\n    s = env(a)\n"
    assert made(source) == set()


def test_what_an_environment_answers_to_the_model_is_no_batch() -> None:
    source = (
        "class Env:\n    def reset(self):\n        return 1\n    def step(self, a):\n        return slow(a)\n"
        "env = Env()\n"
        "for episode in range(9):\n    s = env.reset()\n    for t in range(9):\n"
        "        a = net(s)\n        kept.append(a)\n        s = env.step(a)\n"
        "    loss = total(kept)\n    loss.backward()\n"
    )
    assert made(source) >= {2, 3, 8}
    assert not made(source) & {4, 5, 12}


def test_functions_of_other_cells_are_known_by_their_name() -> None:
    source = "for i in range(9):\n    x = make(i)\n" + TRAIN + "    report(loss)\n"
    elsewhere = [
        LineCost("/lib/data.py", 70, name, f"{name} ...", "other", 0.4) for name in ("make", "report", "backward")
    ]
    assert [one.function for one in batch_lines(source, elsewhere, ("net",))] == ["make"]


@pytest.mark.parametrize("source", ["", "def broken(:", "%%bash\nls", "for x in y:\n    print(x)", "model.fit()"])
def test_nothing_is_named_where_the_text_does_not_tell(source: str) -> None:
    assert made(source) == set()


def test_lines_for_ipython_are_left_out() -> None:
    source = "%matplotlib inline\n!ls\nfor i in range(9):\n    x = make(i)\n" + TRAIN
    assert made(source) == {3, 4}
