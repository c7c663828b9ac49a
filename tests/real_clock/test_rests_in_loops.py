"""Real loops of short steps with the taps at rest: counted by hand, trained as without us, nothing left behind."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter_ns
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gpu_doctor.capture.gpu.devicemarks import StepMarks
from gpu_doctor.capture.gpu.windows import FIRST_STEPS, DeviceWindows
from gpu_doctor.capture.lines.sampler import LineSampler
from gpu_doctor.capture.patching import active
from gpu_doctor.capture.recorder import Recorder, RunEnded
from gpu_doctor.capture.taps import listening, sleepers
from gpu_doctor.recording import Recording

BATCH = 8
LONG = 256
GAPS = 0.18
"""Half of what the device's seconds would be short of the wall-clock's if the gaps between steps were not told."""
POINTS = 0.03
"""Half of what the forward, an eighth of a step, would be off if half of the steps, those at rest, went without it."""


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch._dynamo.utils.counters.clear()  # what other tests compiled
    monkeypatch.setattr(sleepers, "_flips", {})
    monkeypatch.setattr("gpu_doctor.capture.rests.FIRST_STEPS", LONG // 4)
    monkeypatch.setattr("gpu_doctor.capture.rests.REST", LONG)
    monkeypatch.setattr("gpu_doctor.capture.rests.SHORT_NS", 10**9)  # other programs run beside this one
    monkeypatch.setattr("gpu_doctor.capture.steadysteps.REST_NS", 10**10)
    yield
    torch.set_num_threads(before)


class Training:
    """A model, its optimizer and its data, and a count of what was done with them."""

    def __init__(self, recorder: Recorder | None) -> None:
        torch.manual_seed(0)
        self.recorder = recorder
        self.model: nn.Module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.loader = DataLoader(TensorDataset(torch.rand(300 * BATCH + 3, 4), torch.rand(300 * BATCH + 3, 2)), BATCH)
        self.steps, self.samples, self.open, self.naps = 0, 0.0, 0.0, 0

    @property
    def resting(self) -> bool:
        return self.recorder is not None and self.recorder.pulse.resting

    def learn(self, x: torch.Tensor, y: torch.Tensor, step: bool = True) -> torch.Tensor:
        self.open += len(x)
        self.naps += self.resting
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(x), y)
        loss.backward()
        if step:
            self.stepped()
        return loss

    def stepped(self) -> None:
        self.optimizer.step()
        self.steps, self.samples, self.open = self.steps + 1, self.samples + self.open, 0.0

    def batches(self, steps: int) -> Iterator[Any]:
        done = 0
        while True:
            for batch in self.loader:
                yield batch
                done += 1
                if done == steps:
                    return


Body = Callable[[Training], None]


def weights(training: Training) -> list[torch.Tensor]:
    return [one.detach().clone() for one in training.model.parameters()]


def raising(error: type[BaseException] | None) -> AbstractContextManager[Any]:
    return nullcontext() if error is None else pytest.raises(error)


def watched(
    body: Body, rests: bool = True, ended: type[BaseException] | None = None, same: bool = True
) -> tuple[Training, Recording]:
    """Plays a loop with the taps on; nothing of ours is left, and the weights are those of the loop alone."""
    before = list(active()), torch.autograd.backward, torch.optim.Optimizer.zero_grad, nn.Module.eval
    alone = Training(None)
    recorder = Recorder()
    recorder.ledger.steady.rests.allowed = rests
    training = Training(recorder)
    namespace = {"model": training.model}
    with raising(ended), listening(recorder, namespace, accelerated=False):
        body(training)
    recording = recorder.close()
    with raising(None if ended is RunEnded else ended):
        body(alone)
    now = list(active()), torch.autograd.backward, torch.optim.Optimizer.zero_grad, nn.Module.eval
    assert now == before
    assert not any("_compiled_call_impl" in vars(one) for one in training.model.modules())
    for one, other in zip(weights(training), weights(alone), strict=True) if same else ():
        assert torch.equal(one, other)
    return training, recording


def counted(training: Training, recording: Recording) -> None:
    assert recording.steps.count.sum() == training.steps
    assert np.nansum(recording.steps.samples) == training.samples
    assert not [note for note in recording.notes if not note.startswith(("Steps of", "Recording takes"))]


def plain(training: Training) -> None:
    for x, y in training.batches(4 * LONG):
        training.learn(x, y)


def test_plain_epochs() -> None:
    training, recording = watched(plain)
    counted(training, recording)
    assert training.naps > 2 * LONG
    assert any("were timed in every phase" in note for note in recording.notes)


class HostAsDevice:
    """A device clock for a loop on a CPU, where everything is done when the host gets to the mark."""

    def __init__(self) -> None:
        self.held = 0

    def ready(self) -> bool:
        return True

    def mark(self) -> int:
        self.held += 1
        return perf_counter_ns()

    def done(self, mark: int) -> bool:
        return True

    def seconds(self, begin: int, end: int) -> float:
        return (end - begin) * 1e-9

    def free(self, mark: int) -> None:
        self.held -= 1


def test_steps_that_are_marked_on_the_device_take_turns_with_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_doctor.capture.gpu.windows.MARKS_SHARE", 0.006)
    device = HostAsDevice()

    def body(training: Training) -> None:
        for i, (x, y) in enumerate(training.batches(8 * LONG)):
            if i == 5 and training.recorder is not None:
                ledger = training.recorder.ledger
                ledger.marks = StepMarks(device, ledger.table)
                ledger.windows = DeviceWindows(ledger.marks, perf_counter_ns())
            training.learn(x, y)

    training, recording = watched(body)
    counted(training, recording)
    steps = recording.steps
    marked = steps.device_steps > 0
    assert training.naps > LONG and FIRST_STEPS < marked.sum() < len(steps) - LONG
    assert np.flatnonzero(marked)[-1] > FIRST_STEPS + LONG  # again after a rest
    # From one step's last work to the next one's: as long as from ask to ask, all in all.
    assert (steps.gpu_s + steps.gpu_gap_s)[marked].sum() == pytest.approx(steps.wall_s[marked].sum(), rel=GAPS)
    assert (steps.gpu_forward_s[marked] > 0).all() and (steps.gpu_backward_s[marked] > 0).all()
    assert device.held == 0


def test_no_rests_where_a_budget_is_set() -> None:
    assert not Recorder(max_steps=10**6).ledger.steady.rests.allowed
    assert not Recorder(max_s=1e6).ledger.steady.rests.allowed
    assert Recorder().ledger.steady.rests.allowed


@pytest.mark.quiet
def test_the_parts_are_those_of_the_same_loop_without_rests() -> None:
    def shares(rests: bool) -> dict[str, float]:
        _, recording = watched(plain, rests)
        steps = recording.steps
        names = ("data_wait", "forward", "backward", "optimizer")
        whole = float(steps.wall_s.sum())
        return {name: float(getattr(steps, f"{name}_s").sum()) / whole for name in names}

    assert shares(True) == pytest.approx(shares(False), abs=POINTS)


@pytest.mark.parametrize("every", [2, 3])
def test_accumulation(every: int) -> None:
    def body(training: Training) -> None:
        whole = TensorDataset(*(one[: 300 * BATCH] for one in training.loader.dataset.tensors))  # type: ignore[attr-defined]
        training.loader = DataLoader(whole, BATCH)
        for number, (x, y) in enumerate(training.batches(2100)):
            training.learn(x, y, step=number % every == every - 1)

    training, recording = watched(body)
    counted(training, recording)
    assert training.naps > LONG


def test_clipped_gradients_are_the_optimizers_in_a_rest_too() -> None:
    def body(training: Training) -> None:
        for x, y in training.batches(3 * LONG):
            training.learn(x, y, step=False)
            nn.utils.clip_grad_norm_(training.model.parameters(), 1.0)
            training.stepped()

    training, recording = watched(body)
    counted(training, recording)
    assert training.naps > LONG


def test_skipped_steps() -> None:
    def body(training: Training) -> None:
        for number, (x, y) in enumerate(training.batches(4 * LONG)):
            if number % 97 == 5:
                training.open += len(x)
                continue
            training.learn(x, y, step=number % 89 != 7)
        training.stepped()

    training, recording = watched(body)
    counted(training, recording)
    assert training.naps


def test_a_second_optimizer_and_its_new_model() -> None:
    def body(training: Training) -> None:
        plain(training)
        training.model = copy.deepcopy(training.model)
        training.optimizer = torch.optim.Adam(training.model.parameters(), lr=0.001)
        plain(training)

    training, recording = watched(body)
    counted(training, recording)
    assert len(recording.setup.optimizers) == 2


@pytest.mark.parametrize("how", ["loader", "eval", "tensors"])
def test_evaluations(how: str) -> None:
    def body(training: Training) -> None:
        held_out, x_all = DataLoader(TensorDataset(torch.rand(64, 4)), 8), torch.rand(256, 4)
        for number, (x, y) in enumerate(training.batches(4 * LONG)):
            training.learn(x, y)
            if number % 300 == 299:
                if how != "tensors":
                    training.model.eval()
                with torch.no_grad():
                    for one in (batch[0] for batch in held_out) if how == "loader" else (x_all,) * 8:
                        training.model(one)
                training.model.train()

    training, recording = watched(body)
    counted(training, recording)
    assert training.naps > LONG
    if how != "tensors":
        assert (recording.steps.evaluation_s > 0).sum() >= 4 * LONG // 300


def test_an_exception_in_the_middle_of_a_step_and_gone_on_with() -> None:
    def body(training: Training) -> None:
        for _ in range(4):
            try:
                for number, (x, y) in enumerate(training.batches(LONG)):
                    training.learn(x, y)
                    if number == LONG - 3:
                        raise ValueError
            except ValueError:
                pass

    training, recording = watched(body)
    assert recording.steps.count.sum() == training.steps
    assert np.nansum(recording.steps.samples) == training.samples


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_ends_the_run_in_a_rest(error: type[BaseException]) -> None:
    def body(training: Training) -> None:
        for number, (x, y) in enumerate(training.batches(4 * LONG)):
            training.learn(x, y)
            if number == 2 * LONG + 11:
                raise error

    training, recording = watched(body, ended=error)
    counted(training, recording)


def test_stop() -> None:
    def body(training: Training) -> None:
        for done, (x, y) in enumerate(training.batches(4 * LONG), 1):
            training.learn(x, y)
            if done == 2 * LONG + 50:
                if training.recorder is None:
                    return
                assert training.resting
                training.recorder.stop()

    training, recording = watched(body, ended=RunEnded)
    counted(training, recording)
    assert training.steps == 2 * LONG + 50


@pytest.mark.parametrize("thrown", range(0, 60, 3))
def test_an_interrupt_at_any_line_leaves_nothing_behind(thrown: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt in our own code while the taps stand down or come back; the loop is gone on with."""
    import sys

    monkeypatch.setattr("gpu_doctor.capture.rests.REST", 20)
    lines = 0

    def trace(frame: Any, event: str, arg: Any) -> Any:
        nonlocal lines
        ours = frame.f_code.co_filename.endswith(("sleepers.py", "rests.py", "steadysteps.py", "taps/forward.py"))
        if not ours or frame.f_code.co_name in ("call", "step", "phase"):
            return None
        lines += event == "line"
        if lines == thrown * 5 and event == "line":
            lines += 1
            raise KeyboardInterrupt
        return trace

    def body(training: Training) -> None:
        nonlocal lines
        left = 2 * LONG
        while left > 0:
            try:
                for x, y in training.batches(left):
                    left -= 1
                    training.learn(x, y)
                    if training.recorder is not None and training.steps == LONG:
                        lines = 0
                        sys.settrace(trace)
            except KeyboardInterrupt:
                sys.settrace(None)
        sys.settrace(None)

    training, recording = watched(body, same=False)  # the interrupt begins an epoch anew
    assert abs(recording.steps.count.sum() - training.steps) <= 40  # what the interrupted call was about to put down
    assert training.naps


def test_code_that_replaces_backward_in_a_rest_keeps_its_own_and_is_heard() -> None:
    calls = 0

    def body(training: Training) -> None:
        nonlocal calls
        calls = 0
        original: Any = None
        for number, (x, y) in enumerate(training.batches(4 * LONG)):
            if number == 2 * LONG:
                original = torch.autograd.backward

                def theirs(*args: Any, **kwargs: Any) -> Any:
                    nonlocal calls
                    calls += 1
                    return original(*args, **kwargs)

                torch.autograd.backward = theirs  # type: ignore[assignment]
            training.learn(x, y)
            if number == 3 * LONG - 1:
                torch.autograd.backward = original
        assert calls == LONG

    training, recording = watched(body)
    assert calls == LONG
    assert recording.steps.count.sum() == training.steps
    assert recording.steps.backward_s[-LONG // 2 :].sum() > 0


def test_backward_replaced_for_good_stays_so() -> None:
    before = torch.autograd.backward

    def body(training: Training) -> None:
        for number, (x, y) in enumerate(training.batches(4 * LONG)):
            if number == 2 * LONG + 20:
                original = torch.autograd.backward

                def theirs(*args: Any, **kwargs: Any) -> Any:
                    return original(*args, **kwargs)

                torch.autograd.backward = theirs  # type: ignore[assignment]
            training.learn(x, y)

    recorder = Recorder()
    training = Training(recorder)
    try:
        with listening(recorder, {"model": training.model}, accelerated=False):
            body(training)
        assert torch.autograd.backward.__name__ == "theirs"
        assert "gpu_doctor" not in torch.autograd.backward.__module__
    finally:
        torch.autograd.backward = before
    assert recorder.close().steps.count.sum() == training.steps


def test_a_module_that_is_compiled_in_a_rest_stays_compiled_and_is_heard() -> None:
    def body(training: Training) -> None:
        for number, (x, y) in enumerate(training.batches(3 * LONG)):
            if number == 2 * LONG:
                training.model.compile(backend="eager")
            training.learn(x, y)

    recorder = Recorder()
    training = Training(recorder)
    with listening(recorder, {"model": training.model}, accelerated=False):
        body(training)
    compiled = vars(training.model)["_compiled_call_impl"]
    assert "gpu_doctor" not in str(getattr(compiled, "__module__", ""))
    steps = recorder.close().steps
    assert steps.count.sum() == training.steps
    assert steps.forward_s[-LONG // 4 :].min() > 0
    torch._dynamo.reset()


def test_copies_pickles_and_checkpoints_in_a_rest() -> None:
    saved: list[bytes] = []

    def body(training: Training) -> None:
        for number, (x, y) in enumerate(training.batches(3 * LONG)):
            training.learn(x, y)
            if number % 100 == 99:
                file = io.BytesIO()
                torch.save(training.model.state_dict(), file)
                saved.append(pickle.dumps(training.model))
                twin = copy.deepcopy(training.model)
                assert "_compiled_call_impl" not in vars(twin) or vars(twin)["_compiled_call_impl"] is None
                twin(x)
                copy.deepcopy(training.optimizer)
                pickle.dumps(training.optimizer)

    training, recording = watched(body)
    counted(training, recording)
    assert training.naps > LONG
    assert b"gpu_doctor" not in b"".join(saved)
    saves = [chore for chore in recording.chores or () if chore.kind == "checkpoint"]
    assert saves and saves[0].calls >= 3 * LONG // 100


def test_threads_that_infer_and_train_beside_the_loop() -> None:
    over = threading.Event()

    def beside() -> None:
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        while not over.wait(0.003):
            model(torch.rand(3, 4)).sum().backward()
            optimizer.step()

    def body(training: Training) -> None:
        over.clear()
        thread = threading.Thread(target=beside)
        try:
            for number, (x, y) in enumerate(training.batches(3 * LONG)):
                if number == LONG:
                    thread.start()
                training.learn(x, y)
        finally:
            over.set()
            thread.join()

    training, recording = watched(body)
    counted(training, recording)


def test_two_loops_and_one_that_pulls_from_nothing() -> None:
    def body(training: Training) -> None:
        plain(training)
        x, y = torch.ones(BATCH, 4), torch.ones(BATCH, 2)
        for number in range(100):
            training.learn(x, y)
            if training.recorder is not None and number == 20:
                training.recorder.ledger.steady.rests.mind()
        plain(training)

    training, recording = watched(body)
    assert recording.steps.count.sum() == training.steps


class Looking(nn.Module):
    """Is looked at in its forward, which has torch on its stack."""

    def __init__(self, look: Callable[[], None]) -> None:
        super().__init__()
        self.look = look
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.look()
        product: torch.Tensor = x * self.weight
        return product


def test_line_costs_in_a_rest_leave_out_what_was_never_seen_before_with_torch_on_its_stack() -> None:
    now = 0.0
    recorder = Recorder()
    sampler = LineSampler(recorder, lambda: now)

    def look() -> None:
        nonlocal now
        if recorder.pulse.resting:
            now += 1.0
            sampler.look()

    def own() -> None:
        look()

    model = Looking(look)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with listening(recorder, {"model": model}, accelerated=False):
        for (x,) in DataLoader(TensorDataset(torch.rand(LONG * BATCH, 1)), BATCH):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
            own()
    costs = sampler.costs()
    assert costs and {one.phase for one in costs} == {"other"}
    assert sum(one.share for one in costs) == pytest.approx(1.0)
    assert len({one.place for one in sampler._resting}) == 1  # one line, half of its looks with torch


def test_a_wrapper_on_a_class_stays_where_python_would_stop_caching_its_attributes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sleepers, "MOST_FLIPS", 1)
    training, recording = watched(plain)
    counted(training, recording)
    assert training.naps > LONG
    assert sleepers._flips == {"Optimizer.zero_grad": pytest.approx(10, abs=9)}


def looked_at() -> tuple[Recorder, LineSampler, Callable[[], None]]:
    """A recorder, its sampler, and a look at the line that asks for it, a second after the one before."""
    seconds = itertools.count(0.0)
    recorder = Recorder()
    sampler = LineSampler(recorder, lambda: next(seconds))

    def look() -> None:
        sampler.look()

    return recorder, sampler, look


def test_line_costs_in_a_rest_take_the_phases_seen_before() -> None:
    recorder, sampler, look = looked_at()
    rested = 0
    model = Looking(look)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with listening(recorder, {"model": model}, accelerated=False):
        for _ in range(2):
            for (x,) in DataLoader(TensorDataset(torch.rand(LONG * BATCH, 1)), BATCH):
                optimizer.zero_grad()
                model(x).sum().backward()
                optimizer.step()
                look()
                rested += recorder.pulse.resting
    assert rested > LONG // 2
    lines = Counter[tuple[str, str]]()
    for one in sampler.costs():  # the line is reached in two ways
        lines[one.function, one.phase] += one.share  # type: ignore[assignment]
    assert lines["look", "forward"] == pytest.approx(0.5, abs=0.02)
    assert lines["look", "other"] == pytest.approx(0.5, abs=0.02)


class Twice(torch.nn.Linear):
    """Is looked at on a line of which in a rest the forward that is not meant is known only."""

    def __init__(self, look: Callable[[], None], resting: Callable[[], bool]) -> None:
        super().__init__(1, 1)
        self.look, self.resting = look, resting

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.resting() == torch.is_grad_enabled():
            self.look()
        else:
            self.look()  # the other one
        return super().forward(x)


def test_line_costs_in_a_rest_are_those_of_the_way_that_was_taken() -> None:
    recorder, sampler, look = looked_at()
    rested = 0
    model = Twice(look, lambda: recorder.pulse.resting)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with listening(recorder, {"model": model}, accelerated=False):
        for _ in range(2):
            for (x,) in DataLoader(TensorDataset(torch.rand(LONG * BATCH, 1)), BATCH):
                optimizer.zero_grad()
                model(x).sum().backward()
                optimizer.step()
                with torch.no_grad():
                    seen = model(x).argmax(1)
                rested += recorder.pulse.resting
    assert rested > LONG // 2 and len(seen) == BATCH
    forwards = [one for one in sampler.costs() if one.phase == "forward"]
    assert sum(one.share for one in forwards) == pytest.approx(1.0)
    assert sum(one.share for one in forwards if one.no_grad) == pytest.approx(0.5, abs=0.02)
    assert {(one.no_grad, one.beside) for one in forwards} == {(True, "step"), (False, "")}


def test_line_costs_in_a_rest_of_what_a_function_does_after_the_forward() -> None:
    """Of backward and update no way is kept: what is seen of them in a rest is theirs all the same."""
    recorder, sampler, look = looked_at()

    class Told(torch.optim.SGD):
        def _init_group(self, *given: Any) -> Any:
            sampler.look()
            return super()._init_group(*given)

    class Passed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            sampler.look()
            return gradient

    model = Looking(look)
    optimizer = Told(model.parameters(), lr=0.1)

    def train_step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        Passed.apply(model(x)).sum().backward()
        optimizer.step()

    rested = 0
    with listening(recorder, {"model": model}, accelerated=False):
        for _ in range(2):
            for (x,) in DataLoader(TensorDataset(torch.rand(LONG * BATCH, 1)), BATCH):
                train_step(x)
                rested += recorder.pulse.resting
    assert rested > LONG // 2
    phases = Counter[str]()
    for one in sampler.costs():
        phases[one.phase] += one.share  # type: ignore[assignment]
    assert phases == pytest.approx({"forward": 1 / 3, "backward": 1 / 3, "optimizer": 1 / 3}, abs=0.02)
