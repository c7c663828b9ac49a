"""A live verdict comes with the first steps that suffice, and anew each time that the steps have doubled."""

from __future__ import annotations

from collections.abc import Iterable

from gpu_doctor.diagnosis.vitals.measure import FEWEST_STEPS
from gpu_doctor.notebook.live_verdict import LiveVerdict
from gpu_doctor.recording import Recording
from tests.support.recordings import starved


def judged_at(looks: Iterable[int]) -> list[int]:
    """The steps at which a new verdict came, of looks at these numbers of steps."""
    verdict = LiveVerdict()
    asked: list[int] = []

    def so_far(steps: int) -> Recording:
        asked.append(steps)
        return starved(steps=max(steps, 1))

    for steps in looks:
        verdict.on(steps, lambda steps=steps: so_far(steps))  # type: ignore[misc]
    return asked


def test_it_is_renewed_each_time_that_the_steps_have_doubled() -> None:
    asked = judged_at(range(20, 1000))
    assert asked == [20, 40, 80, 160, 320, 640]


def test_before_there_are_steps_enough_each_new_step_is_looked_at_once() -> None:
    assert judged_at(range(FEWEST_STEPS)) == list(range(FEWEST_STEPS))


def test_while_no_step_comes_nothing_is_worked_out_again() -> None:
    assert judged_at([0, 0, 0]) == [0]
