"""Copies to a device are counted, weighed and timed; nothing is patched without a device. GPU: `meta` stands in."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from one_tap import Ticking, on, standing

from gpu_doctor.phases import OTHER, TRANSFER
from gpu_doctor.recorder import Recorder
from gpu_doctor.taps.transfer import tap

SEAMS = ((torch.Tensor, "to"), (torch.Tensor, "cuda"))


def begun(clock: Any = None) -> Recorder:
    """A recorder whose loop has begun."""
    recorder = Recorder(clock=clock) if clock else Recorder()
    recorder.ledger.begin()
    return recorder


def test_the_seam_is_restored() -> None:
    before = standing(*SEAMS)
    with on(tap, accelerated=True):
        assert all(now is not then for now, then in zip(standing(*SEAMS), before, strict=True))
    assert standing(*SEAMS) == before
    assert all(now is then for now, then in zip(standing(*SEAMS), before, strict=True))


def test_without_a_device_nothing_is_put_anywhere() -> None:
    before = standing(*SEAMS)
    with on(tap, accelerated=False):
        assert all(now is then for now, then in zip(standing(*SEAMS), before, strict=True))


def test_a_copy_is_counted_weighed_and_timed() -> None:
    recorder = begun(Ticking())
    with on(tap, recorder, accelerated=True):
        assert torch.zeros(8, 4).to("meta").device.type == "meta"
        torch.zeros(2).to("meta", torch.float16, non_blocking=True)
    counts = recorder.ledger.now
    assert (counts.transfers, counts.transfer_bytes, counts.pageable) == (2, 8 * 4 * 4 + 2 * 4, 2)
    assert recorder.ledger.acc[TRANSFER] == 2000
    assert recorder.ledger.acc[OTHER] == -2000  # taken out of the running phase, which has not been billed yet


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.to("cpu"),
        lambda x: x.to(torch.float64),
        lambda x: x.to(torch.zeros(1)),
        lambda x: x.to("meta").to("meta"),
    ],
    ids=["to cpu", "dtype", "like", "there already"],
)
def test_what_stays_where_it_is_is_no_copy(call: Any) -> None:
    recorder = begun()
    with on(tap, recorder, accelerated=True):
        call(torch.zeros(4))
    assert recorder.ledger.now.transfers <= 1
    assert recorder.ledger.now.transfer_bytes in (0, 16)


def test_a_module_and_a_nest_of_copies_are_counted_once_each() -> None:
    recorder = begun()
    with on(tap, recorder, accelerated=True):
        torch.nn.Linear(4, 2).to("meta")
    assert recorder.ledger.now.transfers == 2  # weight and bias


def test_the_copies_of_an_evaluation_are_its_own() -> None:
    recorder = begun()
    recorder.ledger.evaluating = True
    with on(tap, recorder, accelerated=True):
        torch.zeros(4).to("meta")
    assert recorder.ledger.now.transfers == 0
    assert recorder.ledger.acc[TRANSFER] == 0


def test_an_error_passes_and_the_next_copy_is_heard() -> None:
    recorder = begun()
    with on(tap, recorder, accelerated=True):
        with pytest.raises(RuntimeError):
            torch.zeros(4).to("no such device")
        torch.zeros(4).to("meta")
    assert recorder.ledger.now.transfers == 1


class Tracked(torch.Tensor):
    """A tensor subclass that looks methods up in a set, as torchvision's do."""

    handled = frozenset({torch.Tensor.to, torch.Tensor.item, torch.Tensor.cpu})
    seen: list[bool] = []  # noqa: RUF012 - a class-wide note

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(func in cls.handled)
        return super().__torch_function__(func, types, args, kwargs or {})


def test_a_subclass_that_looks_its_methods_up_finds_them() -> None:
    recorder = begun()
    tensor = torch.ones(1).as_subclass(Tracked)
    with on(tap, recorder, accelerated=True):
        Tracked.seen.clear()
        assert isinstance(tensor.to(torch.float64), Tracked)
        assert Tracked.seen[0]
        assert torch.Tensor.to in Tracked.handled
        assert torch.Tensor.to.__name__ == "to"
