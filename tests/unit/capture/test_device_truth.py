"""The arithmetic that tells a GPU's gaps out of a profiler's events, on events whose truth is plain."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tests.support.device_truth import Trace, runtime_waits, trace, truth, without

H2D, D2H, D2D = "Memcpy HtoD (Pageable -> Device)", "Memcpy DtoH (Device -> Pageable)", "Memcpy DtoD (Device -> Device)"
NONE = np.empty((0, 2))


def event(name: str, device: str, begin: float, end: float, **more: object) -> SimpleNamespace:
    """One of a profiler's."""
    return SimpleNamespace(name=name, device_type=device, time_range=SimpleNamespace(start=begin, end=end), **more)


def repeated(number: int, period: float, *work: tuple[float, float]) -> np.ndarray:
    """Steps of one period with the same pieces of work in each."""
    return np.asarray([(k * period + begin, k * period + end) for k in range(number) for begin, end in work])


def test_a_pause_inside_a_step_is_no_gap_though_the_host_waits_in_it() -> None:
    # An accumulation pulls its second batch in the midst of the step, which our marks take for one piece.
    work, waits = repeated(50, 10.0, (0, 2), (5, 9)), repeated(50, 10.0, (2, 5), (9, 10))
    found = truth(Trace(work, NONE, waits), 50)
    assert found.gap_share == pytest.approx(0.1) and found.exposed_wait_share == pytest.approx(0.1)


def test_work_on_two_streams_is_counted_once() -> None:
    found = truth(Trace(repeated(50, 10.0, (0, 5), (2, 6)), NONE), 50)
    assert found.busy_share == pytest.approx(0.6) and found.gap_share == pytest.approx(0.4)


def test_steps_that_are_not_alike_are_refused() -> None:
    with pytest.raises(ValueError, match="7 kernels are not those of 3 equal steps"):
        truth(Trace(np.zeros((7, 2)), NONE), 3)
    with pytest.raises(ValueError, match="0 kernels"):
        truth(Trace(NONE, NONE), 3)


def step(at: float, *before: SimpleNamespace) -> list[SimpleNamespace]:
    """Two kernels of 2 us from `at + 6` on, behind what is given."""
    return [*before, event("gemm", "cuda", at + 6, at + 8), event("sgd", "cuda", at + 8, at + 10)]


def test_a_copy_behind_the_kernels_is_no_gap_at_all() -> None:
    events = [one for k in range(20) for one in step(10 * k, event(H2D, "cuda", 10 * k + 6, 10 * k + 9))]
    found = truth(trace(events, "cuda"), 20)
    assert found.exposed_transfer_share == 0.0 and found.memcpy_share == pytest.approx(0.3)


def test_what_is_read_after_the_step_is_none_of_its_work_and_copies_within_the_device_are() -> None:
    events = [
        one
        for k in range(20)
        for one in step(10 * k, event(D2H, "cuda", 10 * k, 10 * k + 1), event(D2D, "cuda", 10 * k + 5, 10 * k + 6))
    ]
    found = truth(trace(events, "cuda"), 20)
    assert found.gap_share == pytest.approx(0.5) and found.busy_share == pytest.approx(0.5)
    assert found.exposed_transfer_share == pytest.approx(0.1)


def test_events_are_told_apart_by_their_device() -> None:
    events = [
        event("wait", "cpu", 0.0, 1.0),
        event("wait", "cuda", 0.5, 1.5, is_user_annotation=True),
        event("gemm", "cuda", 2.0, 3.0),
        event(H2D, "cuda", 4.0, 5.0),
        event("Memset (Device)", "cuda", 6.0, 7.0, activity_type="gpu_memset"),
        event("Stream Sync", "cuda", 7.0, 9.0, activity_type="cuda_sync"),
    ]
    found = trace(events, "cuda", "wait")
    assert found.kernels.tolist() == [[2.0, 3.0], [6.0, 7.0]] and found.copies.tolist() == [[4.0, 5.0]]
    assert found.waits is not None and found.waits.tolist() == [[0.0, 1.0]]
    assert trace(events, "cuda").waits is None


def test_the_hosts_waits_in_the_driver_are_counted() -> None:
    events = [
        event("cudaLaunchKernel", "cpu", 0, 1),
        event("cudaStreamSynchronize", "cpu", 1, 2),
        event("cudaStreamSynchronize", "cpu", 3, 4),
        event("cudaStreamSynchronize", "cuda", 3, 4),  # the device's mark of it
    ]
    assert runtime_waits(events, "cuda") == {"cudaStreamSynchronize": 2}


def test_what_is_left_of_spans_without_others() -> None:
    whole, taken = np.asarray([[0.0, 10.0], [20.0, 30.0]]), np.asarray([[2.0, 3.0], [8.0, 22.0], [40.0, 50.0]])
    assert without(whole, taken).tolist() == [[0.0, 2.0], [3.0, 8.0], [22.0, 30.0]]
    assert without(whole, NONE).tolist() == whole.tolist() and not len(without(NONE, taken))
