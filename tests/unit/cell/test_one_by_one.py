"""Calls that are made one after the other without need are read off the text; what it does not tell is needed."""

from __future__ import annotations

import pytest

from gpu_doctor.cell.one_by_one import one_by_one_rows

ROLL_OUT = """for t in range(horizon):
    for i, env in enumerate(envs):
        states[t, i] = env.state
        action, value = act(env.state[None])
        actions[t, i] = action[0]
        _, rewards[t, i] = env.step(action[0])
"""


def test_one_environment_after_the_other() -> None:
    assert one_by_one_rows(ROLL_OUT)[4] == 4


@pytest.mark.parametrize(
    "text",
    [
        "ys = [net(x[None]) for x in batch]",
        "for i in range(n):\n    actions[i] = act(states[i])\n    states[i] = envs[i].step(actions[i])",
        "for i in range(n):\n    with torch.no_grad():\n        kept.append(net(x[i : i + 1]))",
        "for image in images:\n    x = resize(image)\n    x = x[None]\n    kept.append(net(x))",
        "for key, x in things.items():\n    kept[key] = net(x)",
    ],
)
def test_none_needs_what_another_gave(text: str) -> None:
    assert one_by_one_rows(text)


@pytest.mark.parametrize(
    "text",
    [
        "for t in range(n):\n    a = act(state)\n    state = env.step(a)",
        "for t in range(n):\n    x = torch.as_tensor(state)\n    a = act(x)\n    state = env.step(a)",
        "for t in range(n):\n    a = act(states[t])\n    states[t + 1] = env.step(a)",
        "for t in range(n):\n    h = cell(x[:, t], h)",
        "for layer in layers:\n    x = layer(x)",
        "for head in heads:\n    kept.append(head(x))",
        "for t in range(n):\n    x = torch.stack([env.state for env in envs])\n    a[t] = act(x[t])\n"
        "    for env in envs:\n        env.step(a[t])",
        "for x, y in loader:\n    loss = net(x).sum()\n    loss.backward()\n    opt.step()",
        "for key, x in things.items():\n    total = add(x, total)",
        "while True:\n    kept.append(net(x))",
        "def episode(n):\n    loss = play(n)\n    loss.backward()\nfor n in range(9):\n    episode(n)",
        "def update(x, y):\n    opt.step()\ndef one(x, y):\n    update(x, y)\nfor x, y in pairs:\n    one(x, y)",
        "from agent import act\nfor x in xs:\n    kept.append(act(x))",
        "for t in range(1, n):\n    seq[:, t] = net(seq[:, :t])[:, -1].argmax(-1)",
        "for t in range(1, n):\n    a = act(states[t - 1])\n    states[t] = move(states[t - 1], a)",
        "kept = [actors[i](seen[i]) for i in range(n)]",
        "class P(nn.Module):\n    def forward(self, x):\n        self.h = self.cell(x, self.h)\n        return self.h\n"
        "for x in xs:\n    kept.append(p(x))",
        "for word in words:\n    kept.append(net(word, cache))",
        "for i in range(n):\n    if i == 0:\n        prev = x[i]\n    y = net(prev)\n    prev = y",
        "for i in (",
    ],
)
def test_what_is_needed_or_not_told(text: str) -> None:
    assert not one_by_one_rows(text)
