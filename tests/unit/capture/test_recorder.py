"""The pen: budget, Stop, losses, readings, news for a view, and what a closed book holds."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from gpu_doctor.capture.events import CPU
from gpu_doctor.capture.kept_losses import DENSE_LOSSES
from gpu_doctor.capture.recorder import Recorder, RunEnded
from gpu_doctor.capture.step_table import StepTable
from gpu_doctor.recording import Cursor, LoaderSetup, Metric
from tests.support.simulated_device import Noted

WATT = Metric("power_w", "W", "power", "detail", device=0)


class Clock:
    """Nanoseconds that pass when told to."""

    def __init__(self) -> None:
        self.ns = 1_000_000_000

    def __call__(self) -> int:
        return self.ns


def opened(**options: Any) -> tuple[Recorder, Clock]:
    """A recorder on a virtual clock."""
    clock = Clock()
    return Recorder(clock=clock, **options), clock


def train(recorder: Recorder, clock: Clock, steps: int, ms: int = 10) -> None:
    """Steps of a plain loop: one millisecond of wait, the rest forward."""
    told = Noted(recorder)
    for i in range(steps):
        told.ask()
        clock.ns += 1_000_000
        told.batch()
        told.forward()
        clock.ns += (ms - 1) * 1_000_000
        told.called()
        told.learns(loss=float(i))
    told.exhaust()
    recorder.fold()


def test_a_closed_book_holds_what_was_written() -> None:
    recorder, clock = opened(settings={"num_workers": 2}, name="mine", source="x = 1")
    recorder.facts.update(device="cuda:0", dtype="float32")
    recorder.loaders["a"] = LoaderSetup("a", role="training")
    recorder.readings.add(WATT, 1.5, 300.0)
    recorder.note("one")
    recorder.note("one")
    train(recorder, clock, 3)
    recorder.cost.add_thread(lambda: 0.5)
    recording = recorder.close("failed", "ValueError: no")
    assert (recording.name, recording.source, recording.settings) == ("mine", "x = 1", {"num_workers": 2})
    assert (recording.outcome, recording.reason, recording.notes) == ("failed", "ValueError: no", ("one",))
    assert recording.setup.device == "cuda:0"
    assert recording.setup.training_loader == LoaderSetup("a", role="training")
    assert recording.series[0].times_s.tolist() == [0.5]
    assert recording.duration_s == pytest.approx(0.03)
    assert len(recording.steps) == 3
    assert recording.overhead_s >= 0.5
    assert recorder.elapsed_s() == pytest.approx(0.03)
    clock.ns += 10**9
    assert recorder.elapsed_s() == pytest.approx(0.03)


def test_a_budget_of_steps_ends_the_loop_at_its_next_step() -> None:
    recorder, clock = opened(max_steps=2)
    train(recorder, clock, 1)
    recorder.check_end()
    train(recorder, clock, 1)
    with pytest.raises(RunEnded, match="budget-reached"):
        recorder.check_end()


def test_a_budget_of_seconds_ends_the_loop() -> None:
    recorder, clock = opened(max_s=0.025)
    train(recorder, clock, 2)
    assert recorder.ending == ""
    train(recorder, clock, 1)
    assert recorder.ending == "budget-reached"


def test_the_end_of_a_budget_passes_handlers_of_exceptions() -> None:
    assert not issubclass(RunEnded, Exception)


def test_stop_is_said_once_and_wins_over_a_later_budget() -> None:
    recorder, clock = opened(max_steps=1)
    recorder.stop()
    train(recorder, clock, 1)
    with pytest.raises(RunEnded, match="stopped"):
        recorder.check_end()


def test_the_first_loss_of_a_step_is_kept_and_later_ones_are_sparse() -> None:
    recorder, _clock = opened()
    told = Noted(recorder)
    for i in range(DENSE_LOSSES + 128):
        told.pull(samples=4.0)
        told.backward(loss=float(i))
        told.backed()
        told.learns(loss=-1.0)
    losses = recorder.close().losses
    assert losses.value[:3].tolist() == [0, 1, 2]
    assert losses.samples[:3].tolist() == [0, 4, 8]
    assert len(losses.value) == DENSE_LOSSES + 2
    assert losses.step[-2:].tolist() == [DENSE_LOSSES, DENSE_LOSSES + 64]


def test_losses_that_cannot_be_read_leave_a_note() -> None:
    recorder, clock = opened()

    def fail(_: list[Any]) -> list[float]:
        raise RuntimeError("device lost")

    recorder.losses.read_by(fail)
    train(recorder, clock, 1)
    recording = recorder.close()
    assert len(recording.losses.value) == 0
    assert recording.notes == ("The losses could not be read: device lost",)


def test_news_come_in_parts_and_once() -> None:
    recorder, clock = opened()
    recorder.readings.add(WATT, 1.0, 1.0)
    train(recorder, clock, 2)
    first = recorder.news(Cursor())
    assert (len(first.steps), len(first.series), first.step_count, first.done, first.reset) == (2, 1, 2, False, False)
    second = recorder.news(first.cursor)
    assert (len(second.steps), len(second.series)) == (0, 0)
    train(recorder, clock, 1)
    recorder.readings.add(WATT, 2.0, 2.0)
    third = recorder.news(second.cursor)
    assert len(third.steps) == 1
    assert third.series[0].values.tolist() == [2.0]
    recorder.close()
    assert recorder.news(third.cursor).done


def test_news_are_the_last_ones_only_if_the_book_was_closed_before_they_were_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorder, clock = opened()
    train(recorder, clock, 3)
    series = recorder.readings.series

    def closed_meanwhile() -> Any:
        if not recorder.over.is_set():
            recorder.close()
        return series()

    monkeypatch.setattr(recorder.readings, "series", closed_meanwhile)
    first = recorder.news(Cursor())
    assert not first.done
    rest = recorder.news(first.cursor)
    assert rest.done and len(first.steps) + len(rest.steps) == 3


def test_a_thinned_run_is_told_anew() -> None:
    recorder, clock = opened()
    recorder.table = StepTable(capacity=4)
    train(recorder, clock, 3)
    cursor = recorder.news(Cursor()).cursor
    train(recorder, clock, 6)
    news = recorder.news(cursor)
    assert news.reset
    assert news.steps.count.sum() == len(news.steps) * recorder.table.stride


def test_the_beat_comes_twice_a_second() -> None:
    recorder, clock = opened()
    beats: list[int] = []
    recorder.listeners.on_beat(lambda: beats.append(clock.ns))
    train(recorder, clock, 20, ms=100)
    assert 3 <= len(beats) <= 5


def test_a_verdict_in_between_waits_for_no_loss() -> None:
    recorder, clock = opened()
    recorder.losses.read_by(lambda losses: pytest.fail("read a loss"))
    train(recorder, clock, 2)
    so_far = recorder.so_far()
    assert len(so_far.steps) == 2
    assert len(so_far.losses.value) == 0


def in_thread(call: Any) -> Any:
    """The result of a call in a fresh thread."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    return found[0]


def test_a_thread_that_pulls_is_taken_for_the_training_until_another_trains() -> None:
    recorder, _ = opened()
    assert recorder.mine()
    assert in_thread(recorder.adopt)
    assert not recorder.mine()
    assert recorder.adopt(trains=True)
    assert not in_thread(recorder.adopt)


def test_a_thread_that_trained_stays_the_training_thread() -> None:
    recorder, clock = opened()
    train(recorder, clock, 1)
    assert not in_thread(lambda: recorder.adopt(trains=True))
    assert recorder.mine()


def test_a_name_that_the_setup_or_the_recording_lacks_is_refused_at_once() -> None:
    recorder = Recorder()
    for fields in (recorder.facts, recorder.parts):
        with pytest.raises(KeyError):
            fields["unheard_of"] = 1
    for fields, name in ((recorder.facts, "loaders"), (recorder.parts, "steps")):
        with pytest.raises(KeyError):
            fields[name] = ()


def test_an_interrupted_fold_costs_the_open_step_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, clock = opened()
    told, read = Noted(recorder), recorder.step_clock.read_cpu
    recorder.log.due = recorder.log.due_ns = 1 << 62

    def interrupted(cpu_ns: int) -> None:
        monkeypatch.setattr(recorder.step_clock, "read_cpu", read)
        raise KeyboardInterrupt

    for i in range(9):
        told.ask()
        clock.ns += 1_000_000
        told.batch()
        if i == 4:
            recorder.log.note((CPU, clock(), 1))
        told.learns(loss=float(i))
    monkeypatch.setattr(recorder.step_clock, "read_cpu", interrupted)
    with pytest.raises(KeyboardInterrupt):
        recorder.fold()
    steps = recorder.close().steps
    assert steps.count.sum() == recorder.step_count >= 8


def test_a_thread_for_each_epoch() -> None:
    """The next thread goes on with the loop of one that has ended, and that one's last step is whole."""
    recorder, clock = opened()
    told, over = Noted(recorder), threading.Event()

    def epoch() -> bool:
        adopted = recorder.adopt(trains=True)
        for _ in range(3):
            told.pull()
            clock.ns += 1_000_000
            told.learns(loss=1.0)
        told.exhaust()
        recorder.log.trains = True
        return adopted

    try:
        for _ in range(3):
            assert in_thread(epoch)
            threading.Thread(target=over.wait).start()  # takes the id that has become free
    finally:
        over.set()
    assert recorder.close().steps.count.sum() == 9
