"""Which tensors of a batch are padded, and how long their rows are; what only looks like padding is none."""

from __future__ import annotations

from collections import UserDict
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from gpu_doctor.capture.describe.padding import cpu_tensors, padded_in

LENGTHS = [30, 12, 25, 7, 40, 18]


def texts(pad: int = 0, length: int = 64, front: bool = False) -> torch.Tensor:
    """Rows of random tokens of LENGTHS, padded behind or in front."""
    rows = torch.full((len(LENGTHS), length), pad)
    for row, n in zip(rows, LENGTHS, strict=True):
        row[slice(length - n, None) if front else slice(n)] = torch.randint(1, 900, (n,))
    return rows


def clips(length: int = 100) -> torch.Tensor:
    """Spectra (sample, band, time) of LENGTHS, with zeros behind."""
    rows = torch.zeros(len(LENGTHS), 8, length)
    for row, n in zip(rows, LENGTHS, strict=True):
        row[:, :n] = torch.randn(8, n)
    return rows


class Text(UserDict):  # type: ignore[type-arg]
    """A batch as tokenizers make it."""


@dataclass
class Pair:
    """A batch as a dataclass."""

    ids: Any
    y: Any


def seen(batch: Any) -> dict[str, list[int]]:
    """Name of each padded tensor, and the lengths of its rows."""
    return {one.name: one.lengths.tolist() for one in padded_in(cpu_tensors(batch))}


Y = torch.zeros(len(LENGTHS), dtype=torch.long)
IDS = texts()
MASK = (IDS != 0).long()
PADDED: dict[str, tuple[Any, str]] = {
    "tokens": (texts(), "batch"),
    "tokens that end in another number": (texts(pad=901), "batch"),
    "tokens padded in front": (texts(front=True), "batch"),
    "a pair": ((texts(), Y), "batch[0]"),
    "a dataclass": (Pair(texts(), Y), "ids"),
    "a mask": ({"input_ids": IDS, "attention_mask": MASK, "token_type_ids": 0 * IDS}, "attention_mask"),
    "a tokenizer's batch": (Text(input_ids=IDS, attention_mask=MASK), "attention_mask"),
    "a mask of the padding": ((), "pad_mask"),
    "a mask that is padded in front": ({"attention_mask": MASK.flip(1)}, "attention_mask"),
    "a mask beside features": ({"values": torch.randn(6, 64), "attention_mask": MASK.bool()}, "attention_mask"),
    "labels are passed over": ({"labels": torch.full((6, 64), -100), "ids": IDS}, "ids"),
}
PADDED["a mask of the padding"] = ({"ids": IDS, "pad_mask": IDS == 0}, "pad_mask")


@pytest.mark.parametrize("name", PADDED)
def test_padded(name: str) -> None:
    batch, told = PADDED[name]
    assert seen(batch) == {told: LENGTHS}


def test_a_token_of_the_text_that_is_the_padding_too_is_the_end_of_its_text() -> None:
    rows = texts(pad=901)
    for row, n in zip(rows, LENGTHS, strict=True):
        row[n - 1] = 901
    assert seen(rows) == {"batch": [n - 1 for n in LENGTHS]}


def frequent() -> torch.Tensor:
    rows = torch.randint(0, 900, (16, 64))
    rows[torch.rand(16, 64) < 0.6] = 0
    rows[:, -1] = 0
    return rows


def framed() -> torch.Tensor:
    """Digits as MNIST has them: ink in the middle, black at all sides, of their own size."""
    rows = torch.zeros(16, 1, 28, 28)
    for at, row in enumerate(rows):
        edge = 4 + at % 4
        row[:, edge : 28 - edge, edge : 28 - edge] = torch.rand(28 - 2 * edge, 28 - 2 * edge) + 0.1
    return rows


def letterboxed() -> torch.Tensor:
    rows = torch.rand(8, 3, 64, 64)
    rows[:6, :, 40:] = 0.0
    return rows


WELL: dict[str, Any] = {
    "full rows": torch.randint(0, 900, (8, 64)),
    "a frequent token": frequent(),
    "digits": framed(),
    "digits in a row": framed().flatten(1),
    "coloured images": letterboxed(),
    "bytes of images": (letterboxed() * 255).byte(),
    "one of many classes": torch.nn.functional.one_hot(torch.randint(0, 24, (8,)), 24).float(),
    "some of many classes": (torch.rand(32, 100) < 0.03).long(),
    "steps of one class each": torch.nn.functional.one_hot(torch.randint(0, 24, (8, 20)), 24).float(),
    "counts of words": torch.relu(torch.randn(32, 200) - 1.5),
    "nothing but zeros": torch.zeros(8, 64, dtype=torch.long),
    "tokens of full rows with labels that are not": {"labels": texts(-100), "input_ids": torch.randint(1, 9, (6, 64))},
    "a few columns": texts(length=45)[:, 30:],
    "a table": torch.randn(64, 40),
    "numbers alone": torch.zeros(64),
    "what is no tensor": {"names": ["a", "b"], "n": 3},
    "sparse": torch.eye(32).to_sparse(),
    "on another device": torch.zeros(8, 64, device="meta"),
    "features": clips(),
    "features in rows": clips()[:, 0],
    "complex": clips()[:, 0].to(torch.complex64),
}


@pytest.mark.parametrize("name", WELL)
def test_well(name: str) -> None:
    assert seen(WELL[name]) == {}


def test_source_and_target_are_two() -> None:
    assert set(seen({"src": texts(), "tgt": texts(length=48)})) == {"src", "tgt"}


def test_nothing_is_written_to() -> None:
    batch = {"ids": texts(), "attention_mask": MASK.clone(), "x": clips()}
    before = {name: (one.clone(), one._version) for name, one in batch.items()}
    seen(batch)
    for name, (was, version) in before.items():
        assert torch.equal(batch[name], was) and batch[name]._version == version
        batch[name].resize_(1000)  # as its owner may
