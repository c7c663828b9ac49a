"""The arithmetic that tells a GPU's gaps out of a profiler's spans, on spans whose truth is plain."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tests.device_truth import device_spans, named_spans, overlap, truth, united


def steps(number: int, period: float, *work: tuple[float, float]) -> np.ndarray:
    """Steps of one period with the same pieces of work in each."""
    return np.asarray([(k * period + begin, k * period + end) for k in range(number) for begin, end in work])


def test_starved_steps() -> None:
    # of each 10 us the device works 2 + 1 with a break of 1 inside the step, and has nothing to do for 6
    found = truth(steps(50, 10.0, (0, 2), (3, 4)), 50)
    assert found.gap_share == pytest.approx(0.6) and found.busy_share == pytest.approx(0.3)
    assert found.exposed_wait_share is None


def test_a_wait_is_exposed_only_while_nothing_runs() -> None:
    work = steps(50, 10.0, (0, 8))
    waits = steps(50, 10.0, (5, 9))  # four, of which three lie behind the work
    assert truth(work, 50, waits).exposed_wait_share == pytest.approx(0.1)
    assert truth(steps(50, 10.0, (0, 10)), 50, waits).exposed_wait_share == pytest.approx(0.0)


def test_work_on_two_streams_is_counted_once() -> None:
    found = truth(steps(50, 10.0, (0, 5), (2, 6)), 50)
    assert found.busy_share == pytest.approx(0.6) and found.gap_share == pytest.approx(0.4)


def test_steps_that_are_not_alike_are_refused() -> None:
    with pytest.raises(ValueError, match="7 kernels and copies are not those of 3 equal steps"):
        truth(np.zeros((7, 2)), 3)


def test_spans() -> None:
    assert united(np.asarray([(3.0, 5.0), (0.0, 1.0), (4.0, 6.0)])).tolist() == [[0.0, 1.0], [3.0, 6.0]]
    assert overlap(np.asarray([(0.0, 4.0)]), np.asarray([(1.0, 2.0), (3.0, 9.0)])) == 2.0


def test_events_are_told_apart_by_their_device() -> None:
    def event(name: str, device: str, begin: float, **more: bool) -> SimpleNamespace:
        return SimpleNamespace(
            name=name, device_type=device, time_range=SimpleNamespace(start=begin, end=begin + 1), **more
        )

    events = [
        event("wait", "cpu", 0.0),
        event("wait", "cuda", 0.5, is_user_annotation=True),
        event("gemm", "cuda", 2.0),
    ]
    assert device_spans(events, "cuda").tolist() == [[2.0, 3.0]]
    assert named_spans(events, "wait", "cuda").tolist() == [[0.0, 1.0]]
