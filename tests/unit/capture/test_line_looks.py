"""What a look tells besides its line: whose time it was, whether torch computed, what it was pulled from."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from gpu_doctor.capture import events as ev
from gpu_doctor.capture.found import PlacedSample, StackSample
from gpu_doctor.capture.lines.kernel import Kernel
from gpu_doctor.capture.lines.places import Place
from gpu_doctor.capture.lines.sampler import LineSampler, _Sampled
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.step_clock import StepClock
from gpu_doctor.recording.steps import BACKWARD, FORWARD, LOSS, OTHER
from tests.support.iterators import iterator
from tests.support.told_loop import begun

FORWARDS = ev.call_code(training=True, grad=True, trained=True)
MAKER, TRAINER = Place("<cell>", 1, "batches", False), Place("<cell>", 5, "train", False)


def folded(*events: tuple[int, Any], looks: tuple[int, ...]) -> list[tuple[int, bool]]:
    """Phases of looks right before some of the events, and whether a batch was waiting for its forward."""
    clock = StepClock(0)
    seen = [StackSample(10 * at + 5, 10 * at + 6, at) for at in looks]
    clock.fold([(code, 10 * (at + 1), arg) for at, (code, arg) in enumerate(events)], seen)
    clock.finish()
    told = {one.seen: (one.phase, one.feeding) for one in clock.found()[3]}
    return [told[at] for at in looks]


def test_what_follows_a_forward_is_a_loss_only_if_a_backward_comes() -> None:
    source = iterator()
    begin = ((ev.NEXT, source), (ev.BATCH, 8.0), (FORWARDS, None), (ev.CALLED, None))
    ends = ((ev.STEP, 1), (ev.STEPPED, 1), (ev.NEXT, source))
    trained = folded(*begin, (ev.GRADIENT, None), (ev.BACKED, None), *ends, looks=(2, 4))
    assert trained == [(OTHER, True), (LOSS, False)], "between batch and forward, and before the backward"
    left = folded(*begin, (FORWARDS, None), (ev.CALLED, None), (ev.GRADIENT, None), *ends, looks=(4, 6))
    assert left == [(OTHER, False), (LOSS, False)], "an environment, a decoding: nothing was differentiated after it"


@pytest.mark.parametrize(
    ("late_s", "queued_s", "sleeps", "aside"),
    [
        (0.0, 0.0, False, False),
        (2.0, 0.0, False, True),
        (2.0, 1.9, False, False),
        (0.0, 0.0, True, True),
    ],
    ids=["torch computes", "Python kept its lock", "the look waited for a core", "the thread sleeps"],
)
def test_no_operator_of_torch_ran(
    late_s: float, queued_s: float, sleeps: bool, aside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In switch intervals: so much later than it was due a look came."""
    now = [0]
    recorder = begun(Recorder(clock=lambda: now[0]))
    queued = iter((0.0, queued_s))
    monkeypatch.setattr(Kernel, "queued_s", lambda _: next(queued) * sys.getswitchinterval())
    monkeypatch.setattr(Kernel, "sleeps", lambda *_: sleeps)
    sampler = LineSampler(recorder)
    for late in (1e-9, late_s * sys.getswitchinterval()):
        now[0] += 10**9
        sampler.sample(late)
    (look,) = recorder.log.stack_samples
    assert look.seen[0].outside_torch is aside
    kept = late_s - queued_s > 1.0
    assert (look.begin_ns < now[0]) is kept, "where the thread had to stand still, only what was due counts"


def test_the_time_in_which_a_machine_wakes_a_thread_is_no_wait_for_pythons_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0]
    recorder = begun(Recorder(clock=lambda: now[0]))
    monkeypatch.setattr(Kernel, "queued_s", lambda _: 0.0)
    monkeypatch.setattr(Kernel, "sleeps", lambda *_: False)
    sampler = LineSampler(recorder)
    for intervals in (1.0, 1.2, 2.2):
        now[0] += 10**9
        sampler.sample(intervals * sys.getswitchinterval())
    assert [one.seen[0].outside_torch for one in recorder.log.stack_samples] == [False, True]


def test_a_generator_in_which_the_loop_itself_stands_is_not_pulled_from() -> None:
    sampler = LineSampler(Recorder())
    made, step = Place("<cell>", 3, "batches", False), Place("<cell>", 7, "train", False)
    sampler.placed(PlacedSample(OTHER, False, False, (_Sampled(made, True, (MAKER, TRAINER)), 1.0)))
    sampler.placed(PlacedSample(OTHER, False, False, (_Sampled(step, True, (TRAINER,)), 1.0)))
    assert [one.pulled for one in sampler.costs()] == [True, True], "nothing has trained yet"
    for phase in (FORWARD, BACKWARD):
        sampler.placed(PlacedSample(phase, False, False, (_Sampled(step, False, (TRAINER,)), 1.0)))
    assert {(one.line, one.phase): one.pulled for one in sampler.costs()} == {
        (3, "other"): True,
        (7, "other"): False,
        (7, "forward"): False,
        (7, "backward"): False,
    }


def test_the_first_step_is_warm_up_and_its_looks_are_forgotten_once_there_are_others() -> None:
    sampler = LineSampler(Recorder())
    warm, later = Place("<cell>", 3, "forward", False), Place("<cell>", 4, "forward", False)
    sampler.placed(PlacedSample(FORWARD, False, True, (_Sampled(warm, True, ()), 5.0)))
    assert [(one.line, one.share) for one in sampler.costs()] == [(3, 1.0)]
    sampler.placed(PlacedSample(FORWARD, False, False, (_Sampled(later, True, ()), 1.0)))
    assert [(one.line, one.share) for one in sampler.costs()] == [(4, 1.0)] and sampler.samples == 1
