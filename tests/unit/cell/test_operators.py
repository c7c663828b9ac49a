"""Which lines only make operations on whole tensors is read off the text; Python over their elements is none."""

from __future__ import annotations

import pytest

from gpu_doctor.cell import operator_rows

CROP = """def crop(x):
    off = torch.randint(0, 9, (2, len(x)), device=x.device)
    x = x[i, :, rows[:, :, None], cols[:, None, :]].permute(0, 3, 1, 2)
    flip = torch.rand(len(x), 1, 1, 1) < 0.5
    return torch.where(flip, x.flip(-1), x) + 0.05 * torch.randn_like(x)
for idx in order:
    x, y = crop(train_x[idx]), train_y[idx]
    x -= mean
    loss = net(x)
    loss.backward()
"""


def test_vectorised_augmentation() -> None:
    assert operator_rows(CROP) == {2, 3, 4, 5, 7, 8}


@pytest.mark.parametrize(
    "text",
    [
        "x = torch.tensor(rows)",
        "x = torch.stack(rows)",
        "x = torch.stack([crop(one) for one in x])",
        "y = tokenizer.encode_batch(texts)",
        "words = text.split(' ')",
        "n = x.sum().item()",
        "seen = seen + [x]",
        "print(x.mean())",
        "log(f'{x.mean()}')",
        "x = torch.load(path)",
        "torch.cuda.synchronize()",
        "x = x.flip(0); time.sleep(1)",
        "done = {k: v.clone() for k, v in state.items()}",
        "x = y",
        "if (x > 0).any(): pass",
        "this is no Python",
    ],
)
def test_what_takes_apart_or_is_not_explained(text: str) -> None:
    assert operator_rows(text) == frozenset()


@pytest.mark.parametrize(
    "text", ["x = torch.cat((x, y))", "x = F.interpolate(x, 40)", "z = x @ w", "x.mul_(0.9).add_(y)", "-x[:, rows]"]
)
def test_operations(text: str) -> None:
    assert operator_rows(text) == {1}
