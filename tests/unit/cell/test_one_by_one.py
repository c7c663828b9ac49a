"""Calls that are made one after the other without need are read off the text; what it does not tell is needed."""

from __future__ import annotations

import pytest

from gpu_doctor.cell.one_by_one import gradient_rows, one_by_one_rows

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


PENALTY = """def penalty(critic, mixed):
    scores = critic(mixed)
    norms = []
    for i in range(len(mixed)):
        (grad,) = torch.autograd.grad(scores[i], mixed, create_graph=True)
        norms.append(grad[i].norm(2))
    return torch.stack(norms)
"""
LOSSES = """losses = F.cross_entropy(net(x), y, reduction="none")
for i in range(len(x)):
    losses[i].backward(retain_graph=True)
"""


def test_gradients_of_one_sample_after_the_other() -> None:
    assert gradient_rows(PENALTY) == {5: 5}
    assert gradient_rows(LOSSES) == {3: 3}


def within(body: str, head: str = "for i in range(n):") -> str:
    return head + "".join(f"\n    {line}" for line in body.split("\n"))


@pytest.mark.parametrize(
    "text",
    [
        "gs = [torch.autograd.grad(scores[i], x, create_graph=True)[0][i] for i in range(n)]",
        within("g = grad(scores[i].sum(), x, retain_graph=True)[0]\nkept.append(g[i])"),
        within("g = grad(outputs=scores[i, 0], inputs=x, create_graph=True)\nkept.append(g[0][i])"),
        within("s = scores[i]\nkept[i] = grad(s, x, retain_graph=True)[0][i, :]"),
        within("(g,) = grad(s, x, retain_graph=True)\nkept.append(g[i])", "for i, s in enumerate(scores):"),
        LOSSES.replace("losses[i].b", "(losses[i] / len(x)).b"),
        LOSSES.replace("=True", "=i < len(x) - 1"),
        "criterion = nn.MSELoss(reduction='none')\nlosses = criterion(net(x), y)\n"
        "for loss in losses:\n    loss.backward(retain_graph=True)\n    total += loss.item()",
        "losses = (net(x) - y).square().mean(dim=1)\n"
        "for i, loss in enumerate(losses):\n    loss.backward(retain_graph=True)",
    ],
)
def test_one_call_gives_all_gradients(text: str) -> None:
    assert gradient_rows(text)


@pytest.mark.parametrize(
    "text",
    [
        PENALTY.replace("scores[i]", "scores.sum()").replace("grad[i]", "grad"),
        within("g = grad(loss, group, retain_graph=True)[0]\nkept.append(g)", "for group in groups:"),
        within("rows.append(grad(y[i], x, retain_graph=True)[0])"),  # a Jacobian's rows
        within("trace = trace + grad(y[:, i].sum(), x, create_graph=True)[0][:, i]"),  # its diagonal
        within("g = grad(y[i], x, retain_graph=True)[0]\nkept.append(g[i])\nwhole = whole + g"),
        within("y = net(x)\nx = x - grad(y[i], x)[0][i]"),  # each needs the one before
        within("loss = net(x[i]).sum()\nfast = [w - lr * g for w, g in zip(fast, grad(loss, fast))]"),  # inner steps
        within("gs = grad(losses[i], weights, retain_graph=True)\nkept.append(gs[i])"),  # a gradient for each weight
        within("g = grad(losses[i], shared, retain_graph=True)[0]\nkept.append(g.norm())"),  # balances heads
        within("loss = net(x).sum() / n\nloss.backward()", "for x, y in micro_batches:"),
        within("loss = net(x).sum()\nloss.backward(retain_graph=True)", "for x, y in micro_batches:"),
        "for loss in (content, style):\n    loss.backward(retain_graph=True)",
        "losses = [head(h).mean() for head in heads]\nfor loss in losses:\n    loss.backward(retain_graph=True)",
        within("losses[i].backward(retain_graph=True)"),  # nobody knows of what
        LOSSES.replace("=True", "=False"),
        LOSSES + "    kept.append(net.weight.grad.clone())\n",  # each one's own
        LOSSES + "    clip_(net)\n",
        LOSSES + "    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n",
        LOSSES + "    opt.step()\n",
        LOSSES.replace("    losses", "    losses = again(net)\n    losses"),
        within("hessian.append(grad(first[i], weight, retain_graph=True)[0])"),
        within("kept.append(grad(y[i], x, retain_graph=True)[0][j])", "for i, j in pairs:"),
        "for i in (",
    ],
)
def test_gradients_that_one_call_does_not_give(text: str) -> None:
    assert not gradient_rows(text)
