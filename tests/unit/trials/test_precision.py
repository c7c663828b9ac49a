"""The precision of float32 products is put back under torch's older and newer names, in whatever mixture it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import gpu_doctor
from gpu_doctor.trials.executors.parcel import _process
from gpu_doctor.trials.matmul_precision import newer_places, precisions, put_back
from gpu_doctor.trials.snapshot.snapshot import Snapshot

newer = pytest.mark.skipif(not list(newer_places()), reason="this torch has no fp32_precision")


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """The precision as it was, under its older names and its newer."""
    before = precisions()
    for name, place in newer_places():
        if name.endswith("matmul"):
            place.fp32_precision = "none"  # as torch begins: earlier tests may have set an older name
    yield
    put_back(before)
    assert precisions() == before


def matmul(value: str) -> Callable[[], None]:
    return lambda: setattr(torch.backends.cuda.matmul, "fp32_precision", value)


def nothing() -> None:
    """Leaves everything as it is."""


def older(value: str) -> Callable[[], None]:
    return lambda: torch.set_float32_matmul_precision(value)


@newer
@pytest.mark.parametrize(
    ("own", "cell"),
    [
        (nothing, nothing),
        (nothing, older("high")),
        (nothing, matmul("tf32")),
        (matmul("tf32"), nothing),
        (matmul("tf32"), matmul("ieee")),
        (older("high"), matmul("ieee")),
        (lambda: setattr(torch.backends.cudnn.conv, "fp32_precision", "ieee"), nothing),  # type: ignore[attr-defined]
        (nothing, lambda: setattr(torch.backends, "fp32_precision", "tf32")),
        (nothing, lambda: setattr(torch.backends.cudnn, "allow_tf32", False)),
    ],
)
def test_a_snapshot_puts_back_what_was(own: Callable[[], None], cell: Callable[[], None]) -> None:
    own()
    before = precisions()
    kept = Snapshot.take({})
    cell()
    assert kept.restore() == () and precisions() == before


@newer
def test_after_a_restore_the_users_own_switch_for_all_still_holds() -> None:
    Snapshot.take({}).restore()
    torch.backends.fp32_precision = "tf32"  # type: ignore[attr-defined]
    assert torch.backends.cuda.matmul.fp32_precision == torch.backends.mkldnn.matmul.fp32_precision == "tf32"  # type: ignore[attr-defined]


@newer
def test_it_travels_where_torch_refuses_to_tell() -> None:
    matmul("tf32")()
    packed: dict[str, Any] = _process(None)["switches"]["torch's matmul precision"]
    assert packed["matmul"] is None and packed["newer"]["cuda.matmul"] == "tf32"
    matmul("none")()
    put_back(packed)
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"


def test_a_torch_without_the_newer_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_doctor.trials.matmul_precision._NEWER", ())
    before = precisions()
    assert before["newer"] == {}
    torch.set_float32_matmul_precision("medium")
    torch.backends.cudnn.allow_tf32 = not before["convolutions"]
    put_back(before)
    assert precisions() == before
    monkeypatch.undo()


@newer
def test_a_trial_of_a_cell_that_sets_the_newer_name_is_a_trial() -> None:
    cell = """
import torch
torch.backends.cuda.matmul.fp32_precision = "tf32"
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in torch.utils.data.DataLoader(torch.randn(400, 4), batch_size=4):
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""
    case = gpu_doctor.case(cell, {"__name__": "__main__"})
    case.run()
    effect = case.trial({"threads": 1}, steps=10, pairs=1)
    assert effect.speedup is not None and effect.not_restored == ()
