"""Expressions that may wait for the GPU, read off the text."""

from __future__ import annotations

import pytest

from gpu_doctor.cell import waiting_lines
from gpu_doctor.recording import LineCost


def said(text: str, source: str = "") -> str | None:
    """Of the last line of a text."""
    row = len(source.splitlines()) if source else 7
    cost = LineCost("<cell>", row, "<module>", text.strip(), "other", 0.2)
    return waiting_lines(source, [cost]).get(cost)


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("loss = per_token[mask].mean()", "per_token[mask]"),
        ("x = x[y != -100]", "x[y != -100]"),
        ("x = x[:, keep & (y > 0)]", "x[:, keep & (y > 0)]"),
        ("x = x[~torch.isnan(x)]", "x[~torch.isnan(x)]"),
        ("x[mask] = other[mask]", "x[mask]"),
        ("i = torch.nonzero(hits)", "torch.nonzero(hits)"),
        ("i, = torch.where(hits)", "torch.where(hits)"),
        ("v = torch.masked_select(x, hits)", "torch.masked_select(x, hits)"),
        ("k = torch.unique(labels)", "torch.unique(labels)"),
        ("t = torch.tensor(loss)", "torch.tensor(loss)"),
        ("x = x.repeat_interleave(counts, 0)", "x.repeat_interleave(counts, 0)"),
        ("x = torch.repeat_interleave(x, counts)", "torch.repeat_interleave(x, counts)"),
        ("y = F.one_hot(labels)", "F.one_hot(labels)"),
        ("if torch.equal(a, b):", "torch.equal(a, b)"),
        ("for x in parts[mask]:", "parts[mask]"),
    ],
)
def test_what_may_wait(text: str, expression: str) -> None:
    assert said(text) == expression
    assert said(text if not text.endswith(":") else f"{text}\n    pass", text) == expression or text.endswith(":")


@pytest.mark.parametrize(
    "text",
    [
        "x = x[indices]",
        "x = x[:, 3]",
        "x[mask] = 0.0",
        "x[mask] = -1",
        "x = torch.where(mask, x, 0)",
        "x = x * mask",
        "x = x.repeat_interleave(4, 0)",
        "x = torch.repeat_interleave(x, counts, output_size=n)",
        "y = F.one_hot(labels, 10)",
        "t = torch.tensor([1.0, 2.0])",
        "names = np.unique(words)",
        "found = batch['mask']",
        "def broken(",
        "",
    ],
)
def test_what_waits_for_nothing(text: str) -> None:
    assert said(text) is None


def test_a_name_is_followed_to_where_it_is_bound() -> None:
    source = "real = y != -100\nloss = losses[real].mean()\n"
    assert said("loss = losses[real].mean()", source) == "losses[real]"
    assert said("loss = losses[real].mean()") is None


def test_truth_is_torchs() -> None:
    """What such an expression is on this torch: its size depends on the values, so torch refuses it without any."""
    import torch

    x = torch.empty(4, device="meta")
    for waits in (lambda: x[x > 0], lambda: torch.nonzero(x), lambda: torch.unique(x), lambda: torch.where(x > 0)):
        with pytest.raises((NotImplementedError, RuntimeError)):
            waits()
    x[x > 0] = 0.0
    assert torch.where(x > 0, x, 0.0).shape == (4,)
