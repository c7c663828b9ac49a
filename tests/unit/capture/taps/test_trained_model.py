"""Models, inputs and evaluations of real loops are recorded; nothing stays on a module, its copies or its graphs."""

from __future__ import annotations

import math
import pickle
from collections import deque
from collections.abc import MutableSequence
from functools import partial
from typing import Any
from unittest.mock import ANY

import pytest
import torch
from torch import nn

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import listening
from gpu_doctor.capture.taps.trained_model import tap
from gpu_doctor.recording.setup import EvaluationFacts, KeptGraphs
from tests.support.one_tap import batches, model, on, run, sgd


def train(net: nn.Module, optimizer: torch.optim.Optimizer, n: int = 40) -> None:
    """An epoch of n / 8 steps."""
    net.train()
    for x, _ in batches(n):
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()


def test_inputs_are_sampled_in_the_first_steps_and_now_and_then() -> None:
    net, open_, recorder = model(), [], Recorder()
    with listening(recorder, {"net": net}, accelerated=False) as scope:
        optimizer = sgd(net)
        for x, _ in batches(8 * 600):
            open_.append(bool(scope.forwarded))
            optimizer.zero_grad()
            net(x).sum().backward()
            optimizer.step()
    assert recorder.close().setup.inputs is not None
    assert all(open_[1:20]) and 1 <= sum(open_[25:]) <= 8


def test_the_model_is_described_with_all_optimizers() -> None:
    def loop(net: nn.Sequential) -> None:
        optimizers = torch.optim.SGD(net[0].parameters(), lr=0.1), torch.optim.Adam(net[1].parameters())
        net(torch.rand(2, 4, dtype=torch.float64)).sum().backward()
        for optimizer in optimizers:
            optimizer.step()

    setup = run(loop, net=model().double())
    assert setup.optimizers == ("SGD", "Adam")
    assert (setup.dtype, setup.device, setup.models) == ("float64", "cpu", ("Sequential",))
    assert (setup.parameters, setup.parameter_bytes) == (19, 152)
    assert setup.layers == {"Linear": 2}


def test_an_output_of_an_evaluation_is_saved_without_ours() -> None:
    net = model().eval()
    with on(tap, Recorder(), {"net": net}):
        out = net(torch.rand(2, 4))
        assert b"gpu_doctor" not in pickle.dumps(out.detach())
        assert not out._backward_hooks


@pytest.mark.parametrize("how", ["function", "method", "step"])
def test_a_compiled_model_keeps_its_graphs(how: str) -> None:
    from torch._dynamo.testing import CompileCounter

    def graphs(tapped: bool) -> tuple[int, int, bool]:
        torch._dynamo.reset()
        counter, net, recorder = CompileCounter(), model(), Recorder()
        run_it: Any = net
        if how == "function":
            run_it = torch.compile(net, backend=counter)
        elif how == "method":
            net.compile(backend=counter)
        else:
            run_it = torch.compile(lambda x: net(x).relu(), backend=counter)  # type: ignore[misc]
        optimizer = sgd(net)

        def loop() -> None:
            for _ in range(150):  # windows open and close meanwhile
                optimizer.zero_grad()
                run_it(torch.rand(2, 4)).sum().backward()
                optimizer.step()

        if tapped:
            with listening(recorder, {"run_it": run_it, "net": net}, accelerated=True):
                loop()
        else:
            loop()
        return counter.frame_count, counter.op_count, bool(recorder.close().steps.forward_s.sum() > 0)

    frames, operations, _ = graphs(False)
    assert graphs(True) == (frames, operations, how != "step")


def test_model_and_optimizers_are_recorded() -> None:
    def loop(net: nn.Module) -> None:
        first = torch.optim.AdamW(net[0].parameters(), fused=True)  # type: ignore[index]
        second = torch.optim.SGD(net[1].parameters(), lr=0.1, foreach=False)  # type: ignore[index]
        for optimizer in (first, second):
            train(net, optimizer)

    setup = run(loop, net=model())
    assert setup.model is not None and setup.model.device_bytes == {"cpu": 76}
    assert setup.optimizer_facts is not None
    assert [(facts.name, facts.tensors, facts.fused, facts.foreach) for facts in setup.optimizer_facts] == [
        ("AdamW", 2, True, None),
        ("SGD", 2, None, False),
    ]


def test_an_inference_loop_has_a_model_too() -> None:
    def loop(net: nn.Module, unused: nn.Module) -> None:
        with torch.no_grad():
            for x, _ in batches():
                net(x)

    setup = run(loop, net=model().eval(), unused=model().double())
    assert setup.model is not None and setup.model.dtype_bytes == {"float32": 76}
    assert setup.inputs is not None and setup.inputs.shape == (8, 4)
    assert setup.evaluation == EvaluationFacts(3, 0, edge_s=ANY)


def test_a_run_without_a_loop_has_no_facts() -> None:
    setup = run(lambda: None)
    assert (setup.model, setup.optimizer_facts, setup.inputs, setup.evaluation) == (None, None, None, None)


def test_inputs_of_a_loop_with_one_shape() -> None:
    def loop(net: nn.Module) -> None:
        train(net, sgd(net), 8 * 180 + 4)
        with torch.no_grad():
            net.eval()(torch.rand(64, 4))

    inputs = run(loop, net=model()).inputs
    assert inputs is not None
    assert (inputs.shape, inputs.shapes, inputs.dtype, inputs.device) == ((8, 4), 1, "float32", "cpu")
    assert 21 <= inputs.looked_at <= 24 and inputs.new_shape_steps == 0
    assert not inputs.channels_last and math.isnan(inputs.new_shape_s)


def test_a_box_whose_forward_nobody_calls() -> None:
    class Box(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = model()

    def loop(box: Any) -> None:
        optimizer = sgd(box)
        for x, _ in batches(80):
            box.inside(x).sum().backward()
            optimizer.step()

    setup = run(loop, box=Box())
    assert setup.inputs is not None and setup.inputs.shape == (8, 4)
    assert setup.model is not None and setup.model.dtype_bytes == {"float32": 76}


def test_keyword_inputs_and_images() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(3, 4, 3)

        def forward(self, image: torch.Tensor) -> Any:
            return self.layer(image)

    def loop(net: nn.Module) -> None:
        optimizer = sgd(net)
        for _ in range(5):
            net(image=torch.rand(2, 3, 8, 8).to(memory_format=torch.channels_last)).sum().backward()
            optimizer.step()

    inputs = run(loop, net=Net()).inputs
    assert inputs is not None and inputs.shape == (2, 3, 8, 8) and inputs.channels_last


def test_integers_of_all_inputs_are_counted() -> None:
    """Of a model of clicks the first tensor is the dense one."""

    class Clicks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.users, self.layer = nn.Embedding(50, 4), nn.Linear(4, 1)

        def forward(self, dense: torch.Tensor, columns: torch.Tensor, *, kept: torch.Tensor) -> Any:
            return self.layer(dense + self.users(columns[:, 0]) * kept[:, None])

    def loop(net: nn.Module) -> None:
        optimizer = sgd(net)
        for _ in range(3):
            net(
                torch.rand(8, 4), torch.zeros(8, 3, dtype=torch.int64), kept=torch.ones(8, dtype=torch.bool)
            ).sum().backward()
            optimizer.step()

    inputs = run(loop, net=Clicks()).inputs
    assert inputs is not None
    assert inputs.dtype == "float32" and inputs.indices == 24


def evaluate(net: nn.Module, n: int = 20) -> None:
    """A pass over held-out data in evaluation mode, with gradients where nothing switches them off."""
    net.eval()
    for x, _ in batches(n):
        net(x).sum().item()


def in_each_epoch(net: nn.Module) -> None:
    optimizer = sgd(net)
    for _ in range(3):
        train(net, optimizer)
        evaluate(net)


def late_in_a_run(net: nn.Module) -> None:
    train(net, sgd(net), 8 * 90)
    evaluate(net, 8 * 20)


def after_epochs_cut_short(net: nn.Module) -> None:
    """The last step ends only when the evaluation requests its batch."""
    optimizer = sgd(net)
    for _ in range(4):
        net.train()
        for step, (x, _) in enumerate(batches(400)):
            optimizer.zero_grad()
            net(x).sum().backward()
            optimizer.step()
            if step == 11:
                break
        evaluate(net, 8 * 20)


def whose_graphs_are_summed(net: nn.Module) -> None:
    optimizer = sgd(net)
    for _ in range(2):
        train(net, optimizer)
        net.eval()
        total: Any = 0.0
        for x, _ in batches():
            total = total + net(x).sum()


def between_steps_without_a_loader(net: nn.Module) -> None:
    optimizer = sgd(net)
    for _ in range(10):
        net.train()
        optimizer.zero_grad()
        net(torch.rand(8, 4)).sum().backward()
        optimizer.step()
        net.eval()
        net(torch.rand(8, 4)).sum().item()


def under(mode: Any, net: nn.Module) -> None:
    train(net, sgd(net))
    with mode():
        evaluate(net)


def inference_alone(net: nn.Module) -> None:
    evaluate(net, 80)


def gradients_handed_out(penalty: bool, net: nn.Module) -> None:
    """Of the inputs: as a penalty that is learned from, or as forces."""
    optimizer = sgd(net)
    for x, _ in batches():
        net.eval()
        x.requires_grad_(True)
        (slope,) = torch.autograd.grad(net(x).sum(), x, create_graph=penalty)
        if penalty:
            optimizer.zero_grad()
            slope.square().sum().backward()
            optimizer.step()


@pytest.mark.parametrize(
    ("loop", "forwards", "with_gradients"),
    [
        (in_each_epoch, 9, 9),
        (late_in_a_run, 20, 20),
        (after_epochs_cut_short, 80, 80),
        (whose_graphs_are_summed, 6, 6),
        (between_steps_without_a_loader, 10, 10),
        (inference_alone, 10, 10),
        (partial(under, torch.no_grad), 3, 0),
        (partial(under, torch.inference_mode), 3, 0),
        (partial(gradients_handed_out, True), 3, 0),
        (partial(gradients_handed_out, False), 3, 0),
    ],
)
def test_forwards_of_evaluations_and_their_gradients(loop: Any, forwards: int, with_gradients: int) -> None:
    assert run(loop, net=model()).evaluation == EvaluationFacts(forwards, with_gradients, edge_s=ANY)


def test_a_frozen_discriminator_in_eval_mode() -> None:
    def loop(maker: nn.Module, judge: nn.Module) -> None:
        ours, theirs = sgd(maker), sgd(judge)
        for x, _ in batches():
            theirs.zero_grad()
            judge.train()(maker(x).detach()).sum().backward()
            theirs.step()
            ours.zero_grad()
            judge.eval().requires_grad_(False)
            judge(maker(x)).sum().backward()
            judge.requires_grad_(True)
            ours.step()

    found = run(loop, maker=nn.Linear(4, 4), judge=model()).evaluation
    assert found is not None and found.forwards == 3 and found.with_gradients == 0


def test_features_taken_inside_of_a_model_in_eval_mode() -> None:
    """Style transfer: the output is thrown away, a hook's features are learned from."""
    net, taken = model().eval().requires_grad_(False), []
    net[0].register_forward_hook(lambda _, __, out: taken.append(out))  # type: ignore[operator, index]

    def loop(net: nn.Module) -> None:
        image = torch.rand(2, 4, requires_grad=True)
        optimizer = torch.optim.SGD([image], lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            taken.clear()
            net(image)
            taken[0].sum().backward()
            optimizer.step()

    found = run(loop, net=net).evaluation
    assert found is None or found.with_gradients == 0


def test_a_trained_model_that_stays_in_eval_mode() -> None:
    """Two forwards for one backward: the first waits for it."""

    def loop(net: nn.Module) -> None:
        optimizer = sgd(net)
        for x, _ in batches():
            optimizer.zero_grad()
            (net(x) - net(x + 1)).sum().backward()
            optimizer.step()

    setup = run(loop, net=model().eval())
    assert setup.evaluation == EvaluationFacts(6, 0, edge_s=ANY)
    assert setup.inputs is not None and setup.inputs.shape == (8, 4)


@pytest.mark.parametrize(
    ("kept", "what", "alive"),
    [
        ([], lambda output, loss: loss, True),
        ([], lambda output, loss: output, True),
        ([], lambda output, loss: loss.detach(), False),
        (deque(maxlen=20), lambda output, loss: loss, False),
    ],
    ids=["loss", "output", "detached", "bounded"],
)
@pytest.mark.parametrize("steps", [40, 400])
def test_graphs_that_outlive_their_steps(kept: MutableSequence[Any], what: Any, alive: bool, steps: int) -> None:
    kept.clear()  # of the other length
    net, recorder = model(), Recorder()
    with listening(recorder, {"net": net}, accelerated=False):
        optimizer = sgd(net)
        for x, _ in batches(8 * steps):
            optimizer.zero_grad()
            output = net(x)
            loss = output.sum()
            loss.backward()
            optimizer.step()
            kept.append(what(output, loss))
    found = recorder.close().setup.kept_graphs
    assert found is not None and found.marked >= 20 and found.all_steps is alive
    if not alive:
        assert found.alive <= 1, "that of the last step"


def test_few_graphs_show_nothing() -> None:
    assert not KeptGraphs(7, 7).all_steps and KeptGraphs(8, 8).all_steps and not KeptGraphs(40, 39).all_steps


def test_a_model_that_no_optimizer_owns_is_recorded_in_a_loop_without_a_loader() -> None:
    """A teacher that the cell itself makes: its forward is none of the batch's making."""

    class Slow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            clock.now += 10**9
            found: torch.Tensor = self.layer(x)
            return found

    class Clock:
        now = 0

        def __call__(self) -> int:
            self.now += 1
            return self.now

    clock = Clock()
    recorder = Recorder(clock=clock)
    namespace: dict[str, Any] = {}
    with listening(recorder, namespace, accelerated=False):
        namespace["teacher"], student = Slow().eval(), nn.Linear(8, 2)
        namespace["student"] = student
        optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
        for _ in range(8):
            x = torch.rand(4, 8)
            loss = (student(x) - namespace["teacher"](x)).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert recorder.close().steps.forward_s[3:-1] == pytest.approx(1.0, abs=0.01)
