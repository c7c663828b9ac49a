"""Which statements of a forward its output does not depend on; what may be read elsewhere is needed."""

from __future__ import annotations

import pytest

from gpu_doctor.cell.unused_work import idle_rows

MODEL = """class Net(nn.Module):
    def __init__(self):
        self.seen = []
    def forward(self, x):
        h = self.body(x)
        {}
        return self.head(h)
"""
HOOK = """seen = []
def keep(module, args, output):
    values = output.flatten().tolist()
    {}
model[0].register_forward_hook(keep)
"""


def idle(line: str, *callers: str) -> set[int]:
    return set(idle_rows(MODEL.format(line), callers))


@pytest.mark.parametrize(
    "line",
    [
        "self.seen.append(h.detach().cpu().numpy())",
        "print(h.mean().item())",
        "assert not torch.isnan(h).any()",
        "norms = [float(row.norm()) for row in h]",
        "self.writer.add_histogram('h', h)",
        "for row in h: log(row.tolist())",
        "self.writer.add_scalar('norm', h.norm())",
        "self.last = h.tolist()",
        "np.save('h.npy', h.detach().numpy())",
    ],
)
def test_what_no_output_depends_on(line: str) -> None:
    assert idle(line) == {6}


@pytest.mark.parametrize(
    "line",
    [
        "h = h.relu()",
        "h += self.bias",
        "h.clamp_(0, 1)",
        "self.reset(h)",
        "super().forward(x)",
        "if h.isnan().any(): raise ValueError",
        "self.cache['h'] = h",
        "x.register_hook(f); h = h + x",
        "for layer in self.layers: h = layer(h)",
        "with torch.no_grad(): h = self.norm(h)",
        "random.shuffle(self.order)",
        "self.lif.reset()",
        "renew(h)",
        "kernel[grid](x, h)",
        "conf = h.max().item(); keep = conf > 0.9; h = h if keep else x",
    ],
)
def test_what_may_be_needed(line: str) -> None:
    assert idle(line) == set()


def test_what_is_kept_is_needed_where_anything_reads_it() -> None:
    kept = "self.losses.append(float(balance(h)))"
    assert idle(kept) == {6}
    assert idle(kept, "loss = criterion(out, y) + sum(model.losses)") == set()
    assert idle(kept, "model.losses.clear()") == {6}, "emptied each step, and read by nobody"
    assert idle("self.hidden = h.detach()", "state = net.hidden") == idle(kept, "getattr(m, 'losses')") == set()
    assert idle("self.losses.append(balance(h))") == set(), "a loss of its own: who reads it may stand anywhere"
    assert idle("global count; count = h.tolist()", "print(count)") == set()
    assert idle(kept, "for x in (") == {6}, "no Python"
    assert idle_rows("for x in loader: train(x)") == idle_rows("def forward(") == frozenset()


def test_hooks_that_return_nothing() -> None:
    assert set(idle_rows(HOOK.format("seen.append(sum(values))"))) == {3, 4}
    assert set(idle_rows(HOOK.format("return output * 2"))) == set()
    assert set(idle_rows(HOOK.format("output.mul_(2)"))) == {3}
    assert set(idle_rows(HOOK.format("seen.append(values)"), ("loss = style(seen)",))) == set()
    assert set(idle_rows(HOOK.format("features['a'] = values"))) == set(), "who reads it may stand anywhere"
    assert set(idle_rows(HOOK.format("pass").replace("register_forward_hook", "apply"))) == set(), "no hook"


def test_hooks_that_a_function_makes() -> None:
    text = "def hook_of(name):\n    def hook(m, i, o):\n        print(name, o.std().item())\n    return hook\n"
    assert set(idle_rows(text + "layer.register_forward_hook(hook_of('a'))\n")) == {3}


def test_other_forwards_and_what_is_handed_in() -> None:
    assert not idle_rows(MODEL.replace("(self, x)", "(ctx, x)").format("print(h.tolist())")), "an autograd.Function"
    given = MODEL.replace("(self, x)", "(self, x, aux)")
    assert not idle_rows(given.format("aux.append(h.detach())")) and not idle_rows(given.format("aux.h = h.item()"))
    leaves = "k = h.max().item() > 0.9\n        if k: return x"
    assert not idle_rows(MODEL.format(leaves)), "what decides is needed"


def test_a_long_file_is_gone_through_soon() -> None:
    block = "    def forward(self, x):\n        h = self.a(x)\n        y = h.relu() + x\n        return self.b(y)\n"
    text = "".join(f"class B{i}(nn.Module):\n{block}" for i in range(300))
    assert idle_rows(text) == frozenset()  # 15 kB; with every pair of nodes looked at it took minutes
