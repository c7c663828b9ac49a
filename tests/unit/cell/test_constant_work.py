"""Which lines make the same in every step is read off the text and the names that hold plain values; batches, weights,
chance and what somebody changes are new in every step."""

from __future__ import annotations

import pytest

from gpu_doctor.cell import constant_rows

PLAIN = frozenset({"SIZE", "self.sizes", "self.width", "self.step", "self.config"})
DETECTOR = """class Detector(nn.Module):
    def __init__(self):
        self.sizes = (8, 16)
        self.boxes = self.make(3)
    def make(self, scale=1.0):
        boxes = []
        for size in self.sizes:
            for y in range(SIZE // size):
                half = math.sqrt(scale) * size / 2
                boxes.append([y * size - half, y * size + half])
        return torch.tensor(boxes)
    def forward(self, x):
        h = self.body(x)
        return h, self.make(2.0).to(x.device)
"""


def told(text: str, *others: str) -> set[str]:
    """The lines of a text that make the same."""
    lines = text.splitlines()
    return {lines[row - 1].strip() for row in constant_rows((text, *others), PLAIN)[0]}


def test_anchors_made_by_python_loops() -> None:
    assert constant_rows((DETECTOR,), PLAIN)[0] == set(range(6, 12))
    assert not constant_rows((DETECTOR,), PLAIN - {"SIZE"})[0] & {8, 9, 10, 11}, "what SIZE is, nobody knows"


def test_another_call_with_something_new_counts() -> None:
    """The lines are the same for both calls: a look cannot tell which ran."""
    other = "def grown(self, x):\n    return self.make(x.mean())\n"
    assert constant_rows((DETECTOR, other), PLAIN)[0] == set()
    assert constant_rows((DETECTOR, "callback(detector.make)\n"), PLAIN)[0] == set(), "nobody knows who calls it"


@pytest.mark.parametrize(
    "change",
    [
        "model.sizes = (4, 8)",
        "model.sizes[0] += 1",
        "setattr(model, 'sizes', now)",
        "model.sizes.append(3)",
        "for SIZE in range(9):\n    pass",
        "SIZE += 1",
        "def f():\n    global SIZE",
    ],
)
def test_what_some_text_changes_is_new(change: str) -> None:
    rows = constant_rows((DETECTOR, f"{change}\n"), PLAIN)[0]
    assert not rows & {9, 10}, "their sizes may be others each time"


def test_functions_are_followed_across_files() -> None:
    helper = "def table(n, d):\n    t = torch.arange(n)[:, None] / 10000 ** (torch.arange(d) / d)\n    return t.sin()\n"
    model = (
        "class Net:\n    def forward(self, x):\n        t = table(SIZE, self.width)\n        return self.body(x) + t\n"
    )
    assert constant_rows((helper, model), PLAIN) == ({2, 3}, {3})
    assert constant_rows((helper, model.replace("SIZE", "x.size(1)")), PLAIN) == (set(), set())


@pytest.mark.parametrize(
    "line",
    [
        "t = torch.tril(torch.ones(SIZE, SIZE, device=x.device))",
        "t = torch.tensor([[i, j] for i in range(SIZE) for j in self.sizes if i < j])",
        "t = torch.arange(SIZE, dtype=x.dtype).repeat(self.width).unsqueeze(0)",
        "t = torch.full((4,), self.config.width)",
        "t = math.log(np.linspace(0, 1, SIZE).sum())",
        "t = F.one_hot(torch.arange(self.sizes[0]))",
    ],
)
def test_the_same_in_every_step(line: str) -> None:
    assert told(f"class Net:\n    def forward(self, x):\n        {line}\n        return self.body(x) + t\n") == {line}


@pytest.mark.parametrize(
    "line",
    [
        "t = torch.arange(x.size(1))",  # of the batch's length
        "t = torch.arange(SIZE)[None] < lengths[:, None]",
        "t = torch.rand(SIZE) < 0.5",
        "t = torch.zeros(SIZE).uniform_(0, 1)",
        "t = np.random.permutation(SIZE)",
        "t = self.frequencies * SIZE",  # no plain value: a weight, or a buffer that may be an average
        "t = self.embed(torch.arange(SIZE))",
        "t = F.softmax(self.weight, -1)",
        "t = torch.full((4,), self.step)",  # counted
        "t = torch.tensor(self.seen)",
        "t = unknown(SIZE)",
        "t = torch.load('table.pt')",
        "t = (n := SIZE)",
        "t = torch.arange(epoch)",
        "self.kept = torch.arange(SIZE)",
        "print(SIZE)",
    ],
)
def test_new_in_every_step(line: str) -> None:
    forward = (
        f"    def forward(self, x, lengths):\n        self.step += 1\n        {line}\n        return self.body(x) + t\n"
    )
    assert told(f"class Net:\n{forward}", "for epoch in range(9):\n    net.seen.append(1)\n") == set()


def test_what_a_name_holds_may_become_new() -> None:
    made = "t = torch.ones(SIZE)"
    for later in ("t[lengths] = 0", "t = t + x", "t.mul_(x)", "torch.add(x, 1, out=t)", "blend(t, x)"):
        text = f"class Net:\n    def forward(self, x, lengths):\n        {made}\n        {later}\n        return t\n"
        assert told(text) == set(), later
    for later in ("t[0] = 0", "t = t + 1"):
        text = f"class Net:\n    def forward(self, x):\n        {made}\n        {later}\n        return x + t\n"
        assert told(text) == {made, later}


@pytest.mark.parametrize(
    "head", ["if self.grid is None:", "if x.sum() > 0:", "for level in levels(x):", "while x.any():", "try:"]
)
def test_made_once_or_sometimes(head: str) -> None:
    """Neither the statement, nor the function that it calls."""
    end = "        except KeyError:\n            pass\n" if head == "try:" else ""
    make = "    def make(self):\n        return torch.arange(SIZE)\n"
    forward = f"    def forward(self, x):\n        {head}\n            t = self.make()\n{end}        return t\n"
    text = f"class Net:\n{make}{forward}"
    assert told(text) == set()


def test_a_loop_that_is_left_by_the_batch() -> None:
    loop = "        for i in range(SIZE):\n            if x[i] > 0:\n                break\n            t += 1\n"
    assert told(f"class Net:\n    def forward(self, x):\n        t = 0\n{loop}        return t\n") == {
        "for i in range(SIZE):"
    }
    loop = loop.replace("x[i] > 0", "i > 3")
    assert "t += 1" in told(f"class Net:\n    def forward(self, x):\n        t = 0\n{loop}        return x + t\n")


def test_only_what_computes_is_the_same() -> None:
    for effect in ("self.count = 1", "log.append(SIZE)", "print(SIZE)", "global n", "yield SIZE"):
        make = f"    def make(self):\n        {effect}\n        return torch.arange(SIZE)\n"
        text = f"class Net:\n{make}    def forward(self, x):\n        return self.body(x) + self.make()\n"
        assert told(text) == {"return torch.arange(SIZE)"}, effect
        assert told(text.replace("+ self.make()", "+ self.twice(self.make())")) == {"return torch.arange(SIZE)"}


def test_no_forward_no_question() -> None:
    assert constant_rows(("def f():\n    return torch.ones(3)\n", "def (", ""), PLAIN) == (set(), set(), set())
