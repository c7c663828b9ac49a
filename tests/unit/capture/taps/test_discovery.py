"""Models that no name leads to are found when they are called; what is not found is noted, and nothing stays on."""

from __future__ import annotations

import copy
import gc
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from gpu_doctor.capture import patching
from gpu_doctor.capture.next_call import NextCall
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import discovery, listening
from gpu_doctor.capture.taps.forward import SEAM
from gpu_doctor.recording import Recording
from tests.support.one_tap import batches, model, sgd

CALL = nn.Module.__call__
NOT_FOUND = "No module call was seen"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 3), nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(torch.relu(self.body(x)))
        return out


def step(steps: torch.optim.Optimizer, loss: torch.Tensor, zeroes: bool = True) -> None:
    if zeroes:
        steps.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    steps.step()


def train(net: Callable[..., Any], optimizer: torch.optim.Optimizer, steps: int = 4) -> None:
    for _ in range(steps):
        step(optimizer, net(torch.rand(2, 4)).sum())


def recorded(loop: Callable[[], Any], **namespace: Any) -> Recording:
    recorder = Recorder()
    with listening(recorder, namespace, accelerated=False):
        loop()
    assert nn.Module.__call__ is CALL and not patching.active()
    return recorder.close()


def timed(recording: Recording) -> list[bool]:
    return [bool(seconds > 0) for seconds in recording.steps.forward_s]


# ---- found when they are called -------------------------------------------------------------------------------------


def test_a_model_made_in_a_function_is_recorded_from_its_first_call_and_described() -> None:
    def loop() -> None:
        net = Net()
        train(net, sgd(net))

    recording = recorded(loop)
    assert timed(recording) == [True] * 4 and not recording.notes
    setup = recording.setup
    assert setup.models == ("Net",) and setup.layers == {"Linear": 2} and setup.optimizers == ("SGD",)
    assert setup.model is not None and setup.model.unstepped == 0


def test_an_optimizer_found_at_its_first_step_has_its_model_recorded_from_the_second() -> None:
    net = Net()
    keep: list[Any] = [sgd(net)]

    def loop() -> None:
        for _ in range(4):
            step(keep[0], net(torch.rand(2, 4)).sum(), zeroes=False)

    recording = recorded(loop, other=nn.Linear(4, 4))
    assert timed(recording) == [False, True, True, True] and recording.setup.models == ("Net",)


def test_every_model_of_a_sweep_is_recorded() -> None:
    def loop() -> None:
        start = Net()
        for _ in range(5):
            net = copy.deepcopy(start)
            train(net, sgd(net))
            alive.append(weakref.ref(net))
            del net
            assert alive[-1]() is None

    alive: list[weakref.ref[nn.Module]] = []
    recording = recorded(loop)
    assert all(timed(recording)) and len(recording.steps) >= 15 and not recording.notes


@pytest.mark.parametrize("how", ["in a list", "by a function"])
def test_a_model_of_a_sweep_is_walked_no_more_often_in_a_longer_sweep(how: str) -> None:
    class Counted(Net):
        walks = 0

        def named_modules(self, *args: Any, **kwargs: Any) -> Any:
            self.walks += 1
            return super().named_modules(*args, **kwargs)

    def walks_of_the_first(count: int) -> int:
        made: list[Counted] = []

        def loop() -> None:
            for _ in range(count):
                made.append(Counted())
                train(made[-1], sgd(made[-1]), steps=2)

        recorded(loop, **({"made": made} if how == "in a list" else {}))
        return made[0].walks

    assert walks_of_the_first(30) == walks_of_the_first(12)


def test_a_trainer_far_from_any_name() -> None:
    net = Net()
    trainer = SimpleNamespace(inner=SimpleNamespace(strategy=SimpleNamespace(net=net, optimizer=sgd(net))))

    def loop() -> None:
        train(trainer.inner.strategy.net, trainer.inner.strategy.optimizer)

    recording = recorded(loop, trainer=trainer)
    assert timed(recording) == [True] * 4 and recording.setup.models == ("Net",)


def gan() -> None:
    maker, critic = nn.Linear(4, 4), Net()
    makes, judges = sgd(maker), sgd(critic)
    for _ in range(6):
        step(judges, critic(maker(torch.rand(2, 4)).detach()).sum())
        step(makes, critic(maker(torch.rand(2, 4))).sum())


def teacher_and_student() -> None:
    teacher, student = Net().eval().requires_grad_(False), nn.Linear(4, 1)
    optimizer = sgd(student)
    for _ in range(4):
        x = torch.rand(2, 4)
        step(optimizer, (teacher(x) - student(x)).square().sum())


def parts_of_a_box() -> None:
    box = nn.ModuleDict({"one": nn.Linear(4, 3), "two": Net()})
    optimizer = sgd(box)
    for _ in range(4):
        x = torch.rand(2, 4)
        step(optimizer, box["one"](x).sum() + box["two"](x).sum())


def parameter_beside_the_model() -> None:
    net, scale = Net(), nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([*net.parameters(), scale], lr=0.1)
    for _ in range(4):
        step(optimizer, (net(torch.rand(2, 4)) * scale).sum())


def class_with_a_call_of_its_own() -> None:
    class Counted(Net):
        calls = 0

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return super().__call__(*args, **kwargs)

    net = Counted()
    train(net, sgd(net))
    assert net.calls == 4


@pytest.mark.parametrize(
    ("loop", "models"),
    [
        (gan, {"Linear", "Net"}),
        (teacher_and_student, {"Linear"}),
        (parts_of_a_box, {"Linear", "Net"}),
        (parameter_beside_the_model, {"Net"}),
        (class_with_a_call_of_its_own, {"Counted"}),
    ],
)
def test_all_trained_models_are_found_and_nothing_is_noted(loop: Any, models: set[str]) -> None:
    recording = recorded(loop)
    assert timed(recording) == [True] * len(recording.steps) and len(recording.steps) >= 4
    assert not recording.notes and set(recording.setup.models) == models


def test_a_loop_over_plain_tensors_has_no_model_and_no_note() -> None:
    def loop() -> None:
        image = torch.rand(2, 4, requires_grad=True)
        optimizer = torch.optim.SGD([image], lr=0.1)
        for _ in range(4):
            step(optimizer, image.square().sum())

    assert not recorded(loop).notes


def test_a_box_of_too_many_parts_is_not_recorded_and_that_is_noted() -> None:
    def loop() -> None:
        parts = [nn.Linear(4, 4) for _ in range(discovery.MOST_PARTS + 4)]
        optimizer = sgd(*parts)
        for _ in range(4):
            x = torch.rand(2, 4)
            for part in parts:
                x = part(x)
            step(optimizer, x.sum())
            assert not any(SEAM in vars(part) for part in parts)

    recording = recorded(loop)
    assert not any(timed(recording)[1:]) and recording.notes[0].startswith(NOT_FOUND)


def test_the_replicas_of_a_parallel_model_are_none_of_ours() -> None:
    class Parallel(nn.Module):
        """Calls copies of the model on threads, as `nn.DataParallel` does."""

        def __init__(self, net: nn.Module) -> None:
            super().__init__()
            self.module = net

        def forward(self, x: torch.Tensor) -> Any:
            found: list[Any] = []
            for _ in range(2):
                replica = self.module._replicate_for_data_parallel()
                replica._parameters = dict(self.module._parameters)
                thread = threading.Thread(target=lambda one=replica: found.append((one(x), SEAM in vars(one))))
                thread.start()
                thread.join()
            assert not any(ours for _, ours in found)
            return found[0][0] + found[1][0]

    def loop() -> None:
        net = Parallel(nn.Linear(4, 1))
        train(net, sgd(net))

    recording = recorded(loop)
    assert timed(recording) == [True] * 4 and recording.setup.models == ("Parallel",)


def test_a_loop_that_predicts_with_one_model_after_the_other() -> None:
    calls: list[bool] = []

    def loop() -> None:
        for _ in range(3):
            net = Net().eval()
            for x, _ in batches(40, batch_size=1):
                with torch.no_grad():
                    net(x)
            calls.append(SEAM in vars(net))

    recording = recorded(loop)
    assert calls[0] and len(recording.steps) == 120 and recording.setup.models == ("Net",)


# ---- not found, and noted --------------------------------------------------------------------------------------------


def test_a_forward_on_another_thread_is_not_recorded_and_that_is_noted() -> None:
    def loop() -> None:
        net = Net()
        optimizer = sgd(net)
        for _ in range(4):
            losses: list[torch.Tensor] = []
            thread = threading.Thread(target=lambda into=losses: into.append(net(torch.rand(2, 4)).sum()))
            thread.start()
            thread.join()
            step(optimizer, losses[0])
        assert SEAM not in vars(net)

    recording = recorded(loop)
    (note,) = (note for note in recording.notes if note.startswith(NOT_FOUND))
    assert "SGD" in note
    assert recording.setup.models == () and recording.setup.parameters == 19


def test_the_search_ends_after_some_steps() -> None:
    def loop() -> None:
        weight = nn.Parameter(torch.rand(4, 1))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for index in range(discovery.SOUGHT + 2):
            step(optimizer, (torch.rand(2, 4) @ weight).sum())
            assert (nn.Module.__call__ is CALL) == (index >= discovery.SOUGHT - 1)

    assert recorded(loop).notes[0].startswith(NOT_FOUND)


# ---- nothing is disturbed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["wrapped", "wrapped before", "itself", "whole step"])
def test_graphs_of_what_is_compiled_stay_as_they_are(how: str, recwarn: pytest.WarningsRecorder) -> None:
    import torch._dynamo

    def graphs(watched: bool) -> tuple[Any, ...]:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        torch.manual_seed(0)
        net = Net()
        before = torch.compile(net, backend="eager")
        optimizer = torch.optim.Adam(net.parameters(), lr=torch.tensor(0.1))

        def loop() -> None:
            called: Any = net
            made = torch.optim.SGD(net.parameters(), lr=0.1)  # something is looked for from here on
            if how == "wrapped":
                called = torch.compile(net, backend="eager")
            elif how == "wrapped before":
                called = before
            elif how == "itself":
                net.compile(backend="eager")

            def once(x: torch.Tensor) -> None:
                called(x).sum().backward()
                optimizer.step()
                optimizer.zero_grad()

            run = torch.compile(once, backend="eager") if how == "whole step" else once
            for _ in range(20):
                run(torch.ones(2, 4))
            del made

        if watched:
            notes.extend(recorded(loop).notes)
        else:
            loop()
        counts = torch._dynamo.utils.counters
        return counts["stats"]["unique_graphs"], len(counts["recompiles"]), [p.tolist() for p in net.parameters()]

    notes: list[str] = []
    bare = graphs(False)
    assert graphs(True) == bare
    assert any(note.startswith(NOT_FOUND) for note in notes) == (how == "whole step")
    assert not [one for one in recwarn if "global hooks" in str(one.message)]
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def test_training_is_the_same_to_the_bit_and_an_exception_leaves_with_its_own_traceback() -> None:
    class Fails(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.shape[0] == 3:
                raise ValueError("three")
            return super().forward(x)

    def loop() -> None:
        torch.manual_seed(0)
        net = Fails()
        train(net, sgd(net), 8)
        weights.append([p.tolist() for p in net.parameters()])

    def fails() -> None:
        Fails()(torch.rand(3, 4))

    weights: list[Any] = []
    traces: list[list[str]] = []
    loop()
    recording = recorded(loop)
    assert weights[0] == weights[1] and len(recording.steps) == 8
    for run in (fails, lambda: recorded(fails)):
        with pytest.raises(ValueError, match="three") as told:
            run()
        names = [entry.name for entry in told.traceback]
        traces.append(names[names.index("fails") :])
    assert traces[0] == traces[1]


def test_a_scripted_module_is_left_alone() -> None:
    def loop() -> None:
        net = torch.jit.script(Net())
        train(net, sgd(net))

    recording = recorded(loop)
    assert not any(timed(recording)) and recording.notes[0].startswith(NOT_FOUND)


# ---- the stand-in ---------------------------------------------------------------------------------------------------


def test_the_stand_in_reports_the_outermost_module_alone_and_is_off_within() -> None:
    told: list[nn.Module] = []
    net = model()
    net.register_forward_pre_hook(lambda *_: inside.append(nn.Module.__call__ is CALL))
    inside: list[bool] = []

    def called(module: nn.Module) -> bool:
        told.append(module)
        return len(told) < 2

    following = NextCall(called, lambda: True)
    following.wait()
    nn.ReLU()(torch.zeros(1))
    for _ in range(3):
        net(torch.rand(2, 4))
    assert told == [net, net] and inside == [True] * 3 and not following.waits
    following.wait()
    following.end()
    following.wait()
    assert nn.Module.__call__ is CALL


def test_the_stand_in_waits_again_after_a_call_that_raised() -> None:
    following = NextCall(lambda module: True, lambda: True)
    following.wait()
    with suppress(RuntimeError):
        model()(torch.rand(2, 7))
    assert following.waits
    following.end()


def test_threads_that_call_modules_leave_no_stand_in_behind() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    following = NextCall(lambda module: True, lambda: True)
    following.wait()
    net, x = nn.Linear(2, 2), torch.zeros(1, 2)
    threads = [threading.Thread(target=lambda: [net(x) for _ in range(100)]) for _ in range(4)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
        following.end()
    assert nn.Module.__call__ is CALL and not patching.active()


def test_a_stand_in_that_torch_stored_at_its_import_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    following = NextCall(lambda module: False, lambda: True)
    following.wait()
    imported = SimpleNamespace(unpatched_nn_module_call=nn.Module.__call__)
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", imported)
    assert imported.unpatched_nn_module_call is not CALL
    nn.Linear(2, 2)(torch.zeros(1, 2))
    assert imported.unpatched_nn_module_call is CALL
    following.end()


@pytest.mark.parametrize("again", [False, True])
def test_a_stand_in_that_other_code_puts_back_is_gone_at_the_end_and_keeps_nothing(again: bool) -> None:
    told = [Net()]
    kept = weakref.ref(told[0])
    following = NextCall(lambda module: bool(told) and again, lambda: True)
    following.wait()
    by_others = vars(nn.Module)["__call__"]
    nn.Module.__call__ = lambda *args: by_others(*args)  # type: ignore[method-assign, assignment, misc]
    told[0](torch.rand(2, 4))
    nn.Module.__call__ = by_others  # type: ignore[method-assign]
    following.end()
    assert nn.Module.__call__ is CALL
    told.clear()
    gc.collect()
    assert kept() is None and by_others(nn.Linear(2, 1), torch.zeros(1, 2)).shape == (1, 1)
