"""Which statements of a training loop train nothing is read off the text; what it does not tell trains."""

from __future__ import annotations

import pytest

from gpu_doctor.cell.unused_work import beside_lines, loop_rows, needed_lines, trains_nothing
from gpu_doctor.recording import LineCost

LOOP = """for x, y in loader:
    opt.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    loss.backward()
    {}
    opt.step()
"""


def rows(source: str) -> set[int]:
    costs = [LineCost("<cell>", at, "f", one.strip(), "other", 0.1) for at, one in enumerate(source.splitlines(), 1)]
    return {one.line for one in beside_lines(source, costs)}


@pytest.mark.parametrize(
    "line",
    [
        "norms.append(model.weight.grad.norm())",
        "average = copy.deepcopy(model.state_dict())",
        "history[k] = 0.9 * history[k] + 0.1 * out.mean()",
        "acc = (out.argmax(1) == y).float().mean()",
        "plot(out)",
        "for p in model.parameters(): seen.append(p.std().item())",
    ],
)
def test_what_trains_nothing(line: str) -> None:
    assert rows(LOOP.format(line)) == {6}


@pytest.mark.parametrize(
    "line",
    [
        "nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
        "for p in model.parameters(): p.grad *= 0.5",
        "for p in model.parameters(): p.grad = p.grad.clamp(-1, 1)",
        "model.weight.data[0] = 0.0",
        "noise.normal_()",
        "scheduler.step()",
        "opt.param_groups[0]['lr'] = schedule(i)",
        "y = smooth(y); loss = loss + y.sum()",
        "if out.isnan().any(): break",
    ],
)
def test_what_may_train(line: str) -> None:
    assert rows(LOOP.format(line)) == set()


def test_what_the_next_step_reads_trains() -> None:
    source = LOOP.replace("model(x)", "model(x, memory)")
    assert rows(source.format("memory = out.detach()")) == set()
    assert rows(source.format("other = out.detach()")) == {6}


def test_a_loop_that_trains_in_a_function_is_left_alone() -> None:
    assert rows("for x in loader:\n    step(x)\n    plot(x)\n") == set()
    assert rows("for x in") == set()


def test_only_the_innermost_loop_is_told_apart() -> None:
    source = (
        "for epoch in range(3):\n    for x in loader:\n        model(x).backward()\n        plot(x)\n    report(x)\n"
    )
    assert rows(source) == {4}


def test_the_other_statements_of_the_loop_are_needed() -> None:
    source = LOOP.format("acc = (out.argmax(1) == y).float().mean()")
    costs = [LineCost("<cell>", at, "f", one.strip(), "other", 0.1) for at, one in enumerate(source.splitlines(), 1)]
    assert {one.line for one in needed_lines(source, costs)} == {2, 3, 4, 5, 7}
    assert needed_lines("fit()", costs) == () == needed_lines("for x in (", costs)


STEP = """def train_step(x, y):
    opt.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    acc = accuracy(out, y)
    loss.backward()
    opt.step()
    return loss.item(), acc
"""


def told(text: str, *callers: str) -> set[int]:
    return {at for at, _ in enumerate(text.splitlines(), 1) if trains_nothing(text, at, callers)}


def test_a_step_may_be_a_function_whose_loop_stands_elsewhere() -> None:
    assert told(STEP) == set(), "what it returns may be needed: nobody calls it here"
    for loop in ("loss, acc = train_step(x, y)", "seen.append(train_step(x, y))", "total += train_step(x, y)[0]"):
        assert told(STEP, f"for x, y in loader:\n    {loop}\n") == {5, 8}, loop
    assert told(STEP + "for x, y in loader:\n    loss, acc = train_step(x, y)\n") == {5, 8}
    assert told(STEP, "for x, y in loader:\n    loss, state = train_step(x, state)\n") == set(), "it is handed on"
    assert told(STEP, "for x in (", "a" * 300_000) == set(), "no Python, and too long a text"
    assert trains_nothing("a = 1\n" * 100_000 + STEP, 600_005) is None


def test_a_step_that_returns_its_loss() -> None:
    text = "class M(LightningModule):\n" + "".join(
        f"    {one}\n" for one in STEP.replace("train_step(", "training_step(self, ").splitlines()
    )
    text = text.replace("        loss.backward()\n        opt.step()\n", "        self.log('acc', acc)\n")
    assert told(text.replace("loss.item(), acc", "loss")) == {6, 7}
    assert told(text) == {7}, "returned beside the loss, it may be part of it"


def test_lines_of_no_step_are_not_judged() -> None:
    assert [trains_nothing(STEP + "print(model)\n", at) for at in (1, 3, 9)] == [None, "", None]


def test_a_metric_that_is_updated_trains_nothing() -> None:
    assert rows(LOOP.format("seen.update(out)")) == {6}
    assert rows(LOOP.format("self.seen.update(out)")) == {6} and rows(LOOP.format("self.renew(out)")) == set()
    assert rows(LOOP.replace("model(x)", "self.net(x)").format("self.net.update(out)")) == set()
    assert rows(LOOP.format("self.bank.renew(out)")) == set(), "a part of the object, and no metric's method"
    assert rows(LOOP.format("scaler.update()")) == set()
    assert rows(LOOP.replace("model(x)", "model(x, seen)").format("seen.update(out)")) == set()


SAFE = {
    "manual optimization": "class M:\n def training_step(self, b):\n  e = d(b)\n  self.manual_backward(e)\n\n",
    "an opened block": "for x in l:\n out = net(x)\n k = out.mean()\n with scale(k, o) as s: s.backward()\n o.step()\n",
    "a condition": "for x in l:\n k = f(net(x))\n ok = g(k)\n k.backward()\n if ok: o.step()\n",
    "the loop's own": "while not done:\n k = f(net(x))\n k.backward()\n o.step()\n a = g(k)\n done = a > 1\n",
    "a loaded target": "for x in l:\n f(net(x), t(x)).backward()\n o.step()\n t.load_state_dict(net.state_dict())\n",
    "a function that updates": "for x in l:\n f(net(x), t(x)).backward()\n o.step()\n soft_update(t, net)\n",
    "averages that are trained on": "for x in l:\n f(net(x), t(x)).backward()\n o.step()\n t.update(net)\n",
    "two steps": "for x in l:\n net(x).backward()\n o.first_step()\n f(net(x)).backward()\n o.second_step()\n",
    "a bank": "for x in l:\n z = net(x)\n nce(z, queue).backward()\n o.step()\n enqueue(queue, z)\n",
    "a plateau": "for e in r:\n for x in l:\n  net(x).backward()\n  o.step()\n  k.append(f(x))\n s.step(sum(k))\n",
    "a later plateau": "for e in r:\n if e:\n  for x in l:\n   net(x).backward()\n   k.append(f(x))\n s.step(k)\n",
    "gradients by hand": "for x in l:\n f(net(x)).backward()\n average(net)\n dist.all_reduce(p.grad)\n o.step()\n",
    "a rate by hand": "for i, x in l:\n f(net(x)).backward()\n o.step()\n adjust(i)\n",
    "a global": "def step(x):\n global h\n k, h = net(x, h)\n k.backward()\n h = h.detach()\n\nfor x in l: step(x)\n",
}
"""Loops all of whose statements training needs."""


@pytest.mark.parametrize("name", SAFE)
def test_nothing_of_these_can_go(name: str) -> None:
    assert told(SAFE[name]) == set()


def test_a_function_that_is_known_to_look_only() -> None:
    loop = "for x in l:\n    f(net(x)).backward()\n    o.step()\n    check(net, seen)\n"
    assert told(loop) == set()
    assert told(loop, "def check(net, seen):\n    seen.append(net(X).mean().item())\n") == {4}
    assert told(loop, "def check(net, seen):\n    for p in net.parameters(): p.data.mul_(0.9)\n") == set()
    assert told(loop, "def check(net, seen):\n    shrink(net.weight)\n") == set(), "whatever that does to weights"


def test_what_a_step_returns_and_the_loop_goes_on_with() -> None:
    text = "def learn(b):\n    k = f(net(b))\n    p = td(k)\n    k.backward()\n    o.step()\n    return k.item(), p\n"
    assert told(text, "for b in l:\n    k, p = learn(b)\n    print(k, p)\n") == {3, 6}
    assert told(text, "for b in l:\n    k, p = learn(b)\n    buf.priorities(p)\n") == set()
    assert told(text, "for b in l:\n    k, p = learn(b)\n    bank = merge(bank, p)\n") == set()


def test_loops_inside_of_a_step() -> None:
    text = (
        LOOP.format("for i in range(9):\n        f(i)\n    g = [h(i) for i in x]\n    k = 1") + "z = [1 for _ in y]\n"
    )
    assert loop_rows(text) == {6, 7, 8, 11}
    assert loop_rows("for x in (") == frozenset()
