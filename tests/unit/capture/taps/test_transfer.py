"""Copies to a GPU, which is simulated, are counted, weighed and timed; nothing is patched without one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
import torch

from gpu_doctor.capture.events import CAME, COPIED, COPYING, MARK
from gpu_doctor.capture.found import Place
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import dataloader
from gpu_doctor.capture.taps.device_calls import tap
from gpu_doctor.capture.taps.traffic import CopyBook, ToDevice, ToHost
from gpu_doctor.recording import Steps
from gpu_doctor.recording.setup import Traffic
from tests.support.iterators import iterator
from tests.support.one_tap import batches, on, standing
from tests.support.simulated_cuda import SimulatedCuda
from tests.support.simulated_device import Noted, SimulatedDevice

LAUNCH_S: Final = 5e-6
"""What a copy takes beside its bytes."""
SEAMS = tuple((torch.Tensor, name) for name in ("to", "cuda", "copy_"))


@pytest.fixture(autouse=True)
def cuda() -> Iterator[SimulatedCuda]:
    with SimulatedCuda(SimulatedDevice(exact=True)) as found:
        yield found


@pytest.fixture
def recorder(cuda: SimulatedCuda) -> Recorder:
    """Of a loop that has its first batch."""
    found = cuda.device.recorder()
    Noted(found).pull(iterator())
    return found


def evaluates(recorder: Recorder) -> None:
    """The loop has trained, and evaluates now."""
    loop = Noted(recorder)
    loop.step()
    loop.stepped()
    loop.pull(iterator(), grad=False)


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


def test_a_copy_is_counted_weighed_and_timed(cuda: SimulatedCuda, recorder: Recorder) -> None:
    cuda.bytes_per_ms = 64.0
    loop = Noted(recorder)
    with on(tap, recorder, accelerated=True):
        loop.forward()
        assert torch.zeros(8, 4).to("cuda").device.type == "cuda"
        cuda.device.host(3.0)
        torch.zeros(2).to("cuda", torch.float16, non_blocking=True)
        loop.called()
    step = row(recorder)
    assert (step.transfers.item(), step.transfer_bytes.item(), step.pageable.item()) == (2, 8 * 4 * 4 + 2 * 4, 2)
    assert step.transfer_s.item() == pytest.approx(0.00425 + 2 * LAUNCH_S)
    assert step.forward_s.item() == pytest.approx(0.003)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.to("cpu"),
        lambda x: x.to(torch.float64),
        lambda x: x.to(torch.zeros(1)),
        lambda x: x.to("cuda").to("cuda"),
    ],
    ids=["to cpu", "dtype", "like", "there already"],
)
def test_what_stays_where_it_is_is_no_copy(call: Any, recorder: Recorder) -> None:
    with on(tap, recorder, accelerated=True):
        call(torch.zeros(4))
    step = row(recorder)
    assert step.transfers.item() <= 1
    assert step.transfer_bytes.item() in (0, 16)


def test_a_module_and_a_nest_of_copies_are_counted_once_each(recorder: Recorder) -> None:
    with on(tap, recorder, accelerated=True):
        torch.nn.Linear(4, 2).to("cuda")
    assert copies(recorder) == 2  # weight and bias


def test_an_error_passes_and_the_next_copy_is_recorded(recorder: Recorder) -> None:
    with on(tap, recorder, accelerated=True):
        with pytest.raises(RuntimeError):
            torch.zeros(4).to("no such device")
        torch.zeros(4).to("cuda")
    assert copies(recorder) == 1


class Tracked(torch.Tensor):
    """A tensor subclass that looks methods up in a set, as torchvision's do."""

    handled = frozenset({torch.Tensor.to, torch.Tensor.item, torch.Tensor.cpu})
    seen: list[bool] = []  # noqa: RUF012 - a class-wide note

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(func in cls.handled)
        return super().__torch_function__(func, types, args, kwargs or {})


def test_a_subclass_that_looks_its_methods_up_finds_them(recorder: Recorder) -> None:
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


def test_copies_are_sorted_by_size_and_kind(recorder: Recorder) -> None:
    with on(tap, recorder, accelerated=True):
        torch.zeros(300_000).to("cuda", non_blocking=True)  # 1.2 MB of float32: wide
        torch.zeros(300_000, dtype=torch.uint8).to("cuda")
        torch.zeros(4).to("cuda")
        torch.empty(5, device="cuda").copy_(torch.zeros(5))
        torch.zeros(6).copy_(torch.ones(6))
    seen = counted(recorder)
    assert (seen.to_device, seen.small, seen.to_host, seen.round_trips) == (4, 2, 0, 0)
    assert seen.to_device_bytes == 1_200_000 + 300_000 + 16 + 20
    assert seen.wide_bytes == 1_200_000
    assert copies(recorder) == 4


def test_without_a_device_there_is_no_traffic_rather_than_none_of_it(recorder: Recorder) -> None:
    with on(tap, recorder, accelerated=False):
        torch.zeros(4).to(torch.float64)
    assert recorder.so_far().traffic is None


@pytest.mark.parametrize(
    ("call", "blocking"),
    [
        (lambda x: x.to("cuda"), 1),
        (lambda x: x.to("cuda", non_blocking=True), 0),
        (lambda x: x.to("cuda", torch.float32, True), 0),
        (lambda x: x.to("cuda", torch.float32, False), 1),
        (lambda x: torch.empty(2, device="cuda").copy_(x, True), 0),
        (lambda x: torch.empty(2, device="cuda").copy_(x), 1),
    ],
    ids=["plain", "keyword", "positional", "positional false", "copy_ non-blocking", "copy_"],
)
def test_copies_from_pinned_memory_that_the_host_waits_for(call: Any, blocking: int, recorder: Recorder) -> None:
    with on(tap, recorder, accelerated=True):
        call(torch.zeros(2).pin_memory())
    assert counted(recorder).to_device == 1
    assert counted(recorder).blocking_pinned == blocking
    assert row(recorder).pageable.item() == 0


def there(*shape: int) -> torch.Tensor:
    """A tensor on the device."""
    return torch.ones(*shape, device="cuda")


def test_a_round_trip_is_timed_from_the_host_and_back(cuda: SimulatedCuda, recorder: Recorder) -> None:
    cuda.bytes_per_ms = 48.0
    with on(tap, recorder, accelerated=True):
        here = there(4, 3).cpu()
        cuda.device.host(2.0)
        (here * 2).to("cuda")  # computed on meanwhile: the same shape
        again = there(7).cpu()
        again.to("cuda")  # the same memory
    seen = counted(recorder)
    assert (seen.to_host, seen.to_host_bytes, seen.round_trips) == (2, 48 + 28, 2)
    assert seen.round_trip_copy_s == pytest.approx(2e-3 * (48 + 28) / 48 + 2 * LAUNCH_S)
    assert seen.round_trip_s == pytest.approx(0.002 + seen.round_trip_copy_s)
    assert seen.round_trip_bytes == 48 + 28


def test_another_shape_a_number_or_what_came_before_the_last_batch_is_no_round_trip(recorder: Recorder) -> None:
    with on(tap, recorder, accelerated=True):
        there(4, 3).cpu()
        torch.ones(3, 4).to("cuda")
        there(1).cpu()
        torch.ones(1).to("cuda")
        there(4).cpu()
        Noted(recorder).pull(iterator())
        torch.ones(4).to("cuda")
    assert counted(recorder).round_trips == 0


def test_memory_that_a_later_batch_reuses_is_no_round_trip() -> None:
    book, eight = CopyBook(), torch.Size([8])
    first, second = Place(0, 1, 1), Place(1, 1, 2)
    book.count(CAME, 1, ToHost(32, eight, 1000), first)
    book.count(COPIED, 2, (0, 0, ToDevice(96, False, False, torch.Size([8, 3]), 2000)), second)
    book.count(CAME, 3, ToHost(32, torch.Size([5]), 3000), second)
    book.count(COPIED, 4, (0, 0, ToDevice(64, False, False, eight, 1000)), second)
    assert book.round_trips == 0


def test_a_label_copied_after_a_metric_of_its_shape_is_no_round_trip(recorder: Recorder) -> None:
    with on(tap, recorder, accelerated=True) as scope:
        dataloader.tap(scope)
        for x, y in batches(16):
            x.to("cuda")
            assert there(8).cpu().shape == y.shape
            y.to("cuda")
    assert counted(recorder).to_device == 4
    assert counted(recorder).round_trips == 0


def test_to_the_cpu_is_a_wait_like_cpu(cuda: SimulatedCuda, recorder: Recorder) -> None:
    with on(tap, recorder, accelerated=True):
        ones = there(4)
        cuda.launch(3.0, cost_ms=0.0)
        ones.to("cpu")
    assert counted(recorder).to_host == 1
    assert row(recorder).sync_s.item() == pytest.approx(0.003, rel=0.01)


def test_an_evaluation_is_not_counted(recorder: Recorder) -> None:
    evaluates(recorder)
    with on(tap, recorder, accelerated=True):
        torch.zeros(4).to("cuda")
        there(4).cpu()
    assert counted(recorder) == Traffic()
    step = row(recorder)
    assert (step.transfers.item(), step.transfer_s.item()) == (0, 0)


def test_a_tensor_without_an_address_is_counted_all_the_same(recorder: Recorder) -> None:
    with on(tap, recorder, accelerated=True):
        there(3).cpu()
        torch.eye(3).to_sparse().to("cuda")
        torch.ones(3).to("cuda")
    assert (counted(recorder).to_device, counted(recorder).round_trips) == (2, 1)


def test_a_copy_is_marked_on_the_device_where_steps_are(cuda: SimulatedCuda) -> None:
    device = cuda.device
    recorder = device.recorder()
    loop = Noted(recorder, device)
    loop.pull(iterator())
    recorder.log.due, recorder.log.due_ns = 1 << 20, 1 << 62  # nothing is folded meanwhile
    with on(tap, recorder, accelerated=True):
        before = len(device.marks)
        torch.zeros(2).to("cuda", non_blocking=True)
        assert len(device.marks) == before + 2
        torch.zeros(2, device="cuda").copy_(torch.zeros(2), non_blocking=True)
        assert len(device.marks) == before + 4
        torch.zeros(2).to(torch.float16)
        torch.zeros(2, device="cuda").to("cuda", torch.float16)
        assert len(device.marks) == before + 4
        torch.zeros(2).to("cuda")
        assert len(device.marks) == before + 6
        marked = [arg[0] for code, _, arg in recorder.log.events if code == MARK]
        assert marked[-6:] == [COPYING, COPIED, COPYING, COPIED, COPYING, COPIED]
        recorder.log.marker = None  # between two windows
        torch.zeros(2).to("cuda", non_blocking=True)
        assert len(device.marks) == before + 6
    assert copies(recorder) == 4
