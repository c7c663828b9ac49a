"""The precision of float32 products is put back under torch's older and newer names, in whatever mixture it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from gpu_doctor.trials.executors.parcel import _process
from gpu_doctor.trials.matmul_precision import precisions, put_back
from gpu_doctor.trials.snapshot.snapshot import Snapshot
from tests.support.precision import as_it_was as as_it_was
from tests.support.precision import newer


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
