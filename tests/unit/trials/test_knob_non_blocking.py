"""The knob non_blocking: only copies of fresh pinned tensors are let go, and the methods are put back.

There is no GPU here: pinned memory is what the test says it is, and the copy goes to the `meta` device.
"""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from gpu_doctor.capture import patching
from gpu_doctor.recording import LoaderSetup, Setup
from gpu_doctor.trials import knobs
from gpu_doctor.trials.knobs.knob import Refused, TrialScope
from gpu_doctor.trials.knobs.non_blocking import KNOB

PINNED = Setup(device="cuda:0", loaders=(LoaderSetup("a #0", pin_memory=True),))


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The keywords of every copy that reaches torch."""
    heard: list[dict[str, Any]] = []
    original = torch.Tensor.to

    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        heard.append(kwargs)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda self: True)
    return heard


@pytest.mark.parametrize("fails", [False, True])
def test_turned_and_put_back(fails: bool, copies: list[dict[str, Any]]) -> None:
    before = torch.Tensor.to, torch.Tensor.cuda
    scope = TrialScope({}, PINNED)
    with pytest.raises(RuntimeError, match="of the loop") if fails else nullcontext():
        with knobs.turned({"non_blocking": True}, scope):
            torch.zeros(2).to("meta")
            torch.zeros(2).to("meta", non_blocking=False)
            if fails:
                raise RuntimeError("of the loop")
    assert copies == [{"non_blocking": True}] * 2
    assert (torch.Tensor.to, torch.Tensor.cuda) == before
    assert patching.active() == () and scope.notes == []


def test_a_buffer_that_is_filled_again_and_again_still_waits(copies: list[dict[str, Any]]) -> None:
    buffer = torch.empty(2)
    with knobs.turned({"non_blocking": True}, TrialScope({}, PINNED)):
        buffer.copy_(torch.ones(2))
        buffer.to("meta")
        torch.zeros(2, device="meta").to("meta")
        torch.zeros(2).to("meta", torch.float32, False)  # said by position: left as it is
    assert copies == [{}, {}, {}]


def test_what_changed_nothing_is_said() -> None:
    scope = TrialScope({}, PINNED)
    with knobs.turned({"non_blocking": True}, scope):
        torch.zeros(2).to("meta")  # not pinned
    assert "changed nothing" in scope.notes[0]


def test_refused_without_a_gpu_or_pinned_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "trains on the CPU" in KNOB.refusal(True, Setup(torch_version="2"))
    assert "mps" in KNOB.refusal(True, dataclasses.replace(PINNED, device="mps"))
    pageable = dataclasses.replace(PINNED, loaders=(LoaderSetup("a #0"),))
    assert "pin_memory=True" in KNOB.refusal(True, pageable)
    with pytest.raises(Refused, match="pin_memory=True"):
        knobs.allow({"non_blocking": True}, pageable)
    knobs.allow({"non_blocking": True, "pin_memory": True}, pageable)
    with pytest.raises(Refused, match="pin_memory=True"):
        knobs.allow({"non_blocking": True, "pin_memory": False}, PINNED)
    monkeypatch.setattr("gpu_doctor.trials.knobs.non_blocking.cuda_available", lambda: False)
    with pytest.raises(Refused, match="No GPU"), knobs.turned({"non_blocking": True}, TrialScope({})):
        pytest.fail("not reached")


def test_found_choices_and_code() -> None:
    assert KNOB.found(PINNED) is False and KNOB.found(Setup()) is None
    assert [one.refusal for one in KNOB.choices(PINNED)] == ["", ""]
    assert "non_blocking=True" in KNOB.code(True, PINNED)
