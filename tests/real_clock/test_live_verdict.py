"""A loop whose share of plain Python crosses the bound of a rule again and again is shown without flicker."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.diagnosis import diagnose
from gpu_doctor.notebook.live_verdict import LiveVerdict
from tests.support.simulated_device import Noted, SimulatedDevice


def looks_at(python_every: int, steps: int) -> Iterator[Recorder]:
    """A loop of 9 ms of training a step and a line of Python now and then, 10 % of the time on average.

    In virtual time; looked at after every twentieth step while it goes on.
    """
    clock = SimulatedDevice()
    recorder = Recorder(clock=lambda: clock.now)
    told = Noted(recorder)
    for i in range(1, steps + 1):
        told.pull()
        told.forward()
        clock.host(4.5)
        told.called()
        told.backward()
        clock.host(4.5)
        told.backed()
        told.step()
        told.stepped()
        if i % python_every == python_every // 2:
            clock.host(1.0 * python_every)
        if i % 20 == 0:
            yield recorder


def flips(told: list[str]) -> int:
    """How often what is told changes."""
    return sum(before != now for before, now in itertools.pairwise(told))


@pytest.mark.parametrize(("python_every", "most"), [(40, 2), (400, 9)])
def test_a_loop_on_the_bar_is_shown_without_flicker(python_every: int, most: int) -> None:
    """After each such line its share is above 10 %, where slow-python begins to name it, and below before the next."""
    now_s = [0.0]
    verdicts = LiveVerdict(lambda: now_s[0])  # which takes no time, so that every look is a verdict
    raw, shown = [], []
    for recorder in looks_at(python_every, steps=max(12 * python_every, 1000)):
        now_s[0] += 0.2  # the steps that lie between two looks
        plain = diagnose(recorder.so_far())
        live = verdicts.on(recorder.so_far)
        assert live is not None
        raw.append(",".join([plain.bottleneck, *(one.rule for one in plain.findings)]))
        shown.append(",".join([live.bottleneck, *(one.rule for one in live.findings)]))
        assert (live.verdict == plain.verdict) or live.findings[0].headline in live.verdict
    assert flips(raw) >= 20, "the loop must lie on the bar, or this tells nothing"
    assert flips(shown) <= most
