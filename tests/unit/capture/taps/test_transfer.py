"""Copies to a device are counted, weighed and timed; nothing is patched without a device. GPU: `meta` stands in."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data.dataloader import _BaseDataLoaderIter

from gpu_doctor.capture.events import CAME, COPIED, COPYING, MARK
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.spans import Source
from gpu_doctor.capture.taps.traffic import came
from gpu_doctor.capture.taps.transfer import tap
from gpu_doctor.recording import Steps
from gpu_doctor.recording.setup import Traffic
from tests.support.one_tap import Ticking, batches, on, standing
from tests.support.simulated_device import Noted, SimulatedDevice

SEAMS = (
    *((torch.Tensor, name) for name in ("to", "cuda", "copy_")),
    (_BaseDataLoaderIter, "__next__"),
)


def begun(clock: Any = None) -> Recorder:
    """A recorder of a loop that has its first batch."""
    recorder = Recorder(clock=clock) if clock else Recorder()
    Noted(recorder).pull(Source())
    return recorder


def evaluating() -> Recorder:
    """A recorder of a loop that has trained, and evaluates now."""
    recorder = begun()
    loop = Noted(recorder)
    loop.step()
    loop.stepped()
    loop.pull(Source(), grad=False)
    return recorder


def row(recorder: Recorder) -> Steps:
    """The one step that was taken."""
    steps = recorder.close().steps
    assert len(steps) == 1
    return steps


def copies(recorder: Recorder) -> int:
    """How many the step has."""
    return int(row(recorder).transfers.item())


def test_without_a_device_nothing_is_put_anywhere() -> None:
    before = standing(*SEAMS)
    with on(tap, accelerated=False):
        assert all(now is then for now, then in zip(standing(*SEAMS), before, strict=True))


def test_a_copy_is_counted_weighed_and_timed() -> None:
    recorder = begun(Ticking())
    recorder.fold()
    loop = Noted(recorder)
    with on(tap, recorder, accelerated=True):
        loop.forward()
        assert torch.zeros(8, 4).to("meta").device.type == "meta"
        torch.zeros(2).to("meta", torch.float16, non_blocking=True)
        loop.called()
    step = row(recorder)
    assert (step.transfers.item(), step.transfer_bytes.item(), step.pageable.item()) == (2, 8 * 4 * 4 + 2 * 4, 2)
    assert step.transfer_s.item() == pytest.approx(2e-6)
    # Of the five looks at the clock from the forward's begin to its end, each copy's is taken out of the forward.
    assert step.forward_s.item() == pytest.approx(3e-6)


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
    step = row(recorder)
    assert step.transfers.item() <= 1
    assert step.transfer_bytes.item() in (0, 16)


def test_a_module_and_a_nest_of_copies_are_counted_once_each() -> None:
    recorder = begun()
    with on(tap, recorder, accelerated=True):
        torch.nn.Linear(4, 2).to("meta")
    assert copies(recorder) == 2  # weight and bias


def test_the_copies_of_an_evaluation_are_its_own() -> None:
    recorder = evaluating()
    with on(tap, recorder, accelerated=True):
        torch.zeros(4).to("meta")
    step = row(recorder)
    assert step.transfers.item() == 0
    assert step.transfer_s.item() == 0


def test_an_error_passes_and_the_next_copy_is_heard() -> None:
    recorder = begun()
    with on(tap, recorder, accelerated=True):
        with pytest.raises(RuntimeError):
            torch.zeros(4).to("no such device")
        torch.zeros(4).to("meta")
    assert copies(recorder) == 1


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


def counted(recorder: Recorder) -> Traffic:
    """What the recording will say of copies."""
    recorder.fold()
    traffic = recorder.so_far().traffic
    assert traffic is not None
    return traffic


def test_copies_are_sorted_by_size_and_kind() -> None:
    recorder = begun()
    with on(tap, recorder, accelerated=True):
        torch.zeros(300_000).to("meta", non_blocking=True)  # 1.2 MB of float32: wide
        torch.zeros(300_000, dtype=torch.uint8).to("meta")
        torch.zeros(4).to("meta")
        torch.empty(5, device="meta").copy_(torch.zeros(5))
        torch.zeros(6).copy_(torch.ones(6))
    seen = counted(recorder)
    assert (seen.to_device, seen.small, seen.to_host, seen.round_trips) == (4, 2, 0, 0)
    assert seen.to_device_bytes == 1_200_000 + 300_000 + 16 + 20
    assert seen.wide_bytes == 1_200_000
    assert copies(recorder) == 4


def test_without_a_device_there_is_no_traffic_rather_than_none_of_it() -> None:
    recorder = begun()
    with on(tap, recorder, accelerated=False):
        torch.zeros(4).to(torch.float64)
    assert recorder.so_far().traffic is None


class Pinned(torch.Tensor):
    """A tensor that says it is pinned."""

    def is_pinned(self, *args: Any) -> bool:
        return True


@pytest.mark.parametrize(
    ("call", "blocking"),
    [
        (lambda x: x.to("meta"), 1),
        (lambda x: x.to("meta", non_blocking=True), 0),
        (lambda x: x.to("meta", torch.float32, True), 0),
        (lambda x: x.to("meta", torch.float32, False), 1),
        (lambda x: torch.empty(2, device="meta").copy_(x, True), 0),
        (lambda x: torch.empty(2, device="meta").copy_(x), 1),
    ],
    ids=["plain", "keyword", "positional", "positional false", "copy_ non-blocking", "copy_"],
)
def test_copies_from_pinned_memory_that_the_host_waits_for(call: Any, blocking: int) -> None:
    recorder = begun()
    with on(tap, recorder, accelerated=True):
        call(torch.zeros(2).as_subclass(Pinned))
    assert counted(recorder).to_device == 1
    assert counted(recorder).blocking_pinned == blocking
    assert row(recorder).pageable.item() == 0


class Elsewhere(torch.Tensor):
    """A tensor in main memory that says it is on a device, until it is copied."""

    device = torch.device("meta")  # type: ignore[assignment]

    def to(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        with torch._C.DisableTorchFunctionSubclass():
            return torch.Tensor.to(self, *args, **kwargs)


def to_host(recorder: Recorder, tensor: torch.Tensor) -> torch.Tensor:
    """What `.cpu()` gives, and what the tap `sync` then notes."""
    result = tensor.clone()
    recorder.log.note((CAME, recorder.clock(), came(tensor, result)))
    return result


def test_a_round_trip_is_timed_from_the_host_and_back() -> None:
    recorder = begun(Ticking())
    with on(tap, recorder, accelerated=True):
        recorder.log.due = 100  # a fold in between looks at the clock too
        there = to_host(recorder, torch.ones(4, 3))
        (there * 2).to("meta")  # computed on meanwhile: the same shape
        again = to_host(recorder, torch.ones(7))
        again.to("meta")  # the same memory
    seen = counted(recorder)
    assert (seen.to_host, seen.to_host_bytes, seen.round_trips) == (2, 48 + 28, 2)
    # on this clock a microsecond passes at each look: at the way back begin and end
    assert seen.round_trip_s == pytest.approx(4e-6)
    assert (seen.round_trip_bytes, seen.round_trip_copy_s) == (48 + 28, pytest.approx(2e-6))


def test_a_tensor_of_another_shape_or_a_number_is_no_round_trip() -> None:
    recorder = begun()
    with on(tap, recorder, accelerated=True):
        to_host(recorder, torch.ones(4, 3))
        torch.ones(3, 4).to("meta")
        to_host(recorder, torch.ones(1))
        torch.ones(1).to("meta")
    assert counted(recorder).round_trips == 0


def test_a_label_copied_after_a_metric_of_its_shape_is_no_round_trip() -> None:
    recorder = begun()
    with on(tap, recorder, accelerated=True):
        for x, y in batches(16):
            x.to("meta")
            predicted = to_host(recorder, torch.zeros(8))
            assert predicted.shape == y.shape
            y.to("meta")
    assert counted(recorder).to_device == 4
    assert counted(recorder).round_trips == 0


def test_what_came_back_before_the_last_batch_is_forgotten() -> None:
    recorder = begun()
    with on(tap, recorder, accelerated=True):
        to_host(recorder, torch.ones(4))
        Noted(recorder).pull(Source())
        torch.ones(4).to("meta")
    assert counted(recorder).round_trips == 0


def test_to_the_cpu_is_a_wait_like_cpu() -> None:
    recorder = begun(Ticking())
    recorder.step_clock.sync_measured = True
    with on(tap, recorder, accelerated=True):
        torch.ones(4).as_subclass(Elsewhere).to("cpu", copy=True)
    assert counted(recorder).to_host == 1
    assert row(recorder).sync_s.item() == pytest.approx(1e-6)


def test_an_evaluation_is_not_counted() -> None:
    recorder = evaluating()
    with on(tap, recorder, accelerated=True):
        torch.zeros(4).to("meta")
        to_host(recorder, torch.ones(4))
    assert counted(recorder) == Traffic()


def test_a_tensor_without_an_address_is_counted_all_the_same() -> None:
    recorder = begun()
    with on(tap, recorder, accelerated=True):
        to_host(recorder, torch.ones(3))
        torch.eye(3).to_sparse().to("meta")
        torch.ones(3).to("meta")
    assert (counted(recorder).to_device, counted(recorder).round_trips) == (2, 1)


def test_a_copy_is_marked_on_the_device_where_steps_are() -> None:
    device = SimulatedDevice()
    recorder = Recorder()
    loop = Noted(recorder, device)
    loop.pull(Source())
    recorder.log.due, recorder.log.due_ns = 1 << 20, 1 << 62  # nothing is folded meanwhile
    with on(tap, recorder, accelerated=True):
        before = len(device.marks)
        torch.zeros(2).to("meta", non_blocking=True)
        assert len(device.marks) == before + 2
        torch.zeros(2, device="meta").copy_(torch.zeros(2), non_blocking=True)
        assert len(device.marks) == before + 4
        torch.zeros(2).to(torch.float16)
        torch.zeros(2, device="meta").to("meta", torch.float16)
        assert len(device.marks) == before + 4
        torch.zeros(2).to("meta")
        assert len(device.marks) == before + 6
        marked = [arg[0] for code, _, arg in recorder.log.events if code == MARK]
        assert marked[-6:] == [COPYING, COPIED, COPYING, COPIED, COPYING, COPIED]
        recorder.log.marker = None  # between two windows
        torch.zeros(2).to("meta", non_blocking=True)
        assert len(device.marks) == before + 6
    assert copies(recorder) == 4
