"""A frozen model is followed until its samples have come again with the same results; where they differ it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import frozen, listening
from gpu_doctor.recording.setup import FrozenForward

X = torch.rand(32, 12, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def worth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such small models are asked too, however long they take."""
    monkeypatch.setattr(frozen, "WORTH", 0.0)


def teacher(*more: nn.Module) -> nn.Module:
    """A frozen model."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 16), nn.ReLU(), *more, nn.Linear(16, 3)).eval().requires_grad_(False)


def shuffled(epochs: int) -> Iterator[torch.Tensor]:
    """Batches of 4 of 32 samples, in an order of its own each epoch."""
    for _ in range(epochs):
        for at in torch.randperm(32).split(4):
            yield X[at]


def train(
    net: nn.Module,
    batches: Iterator[torch.Tensor],
    after: Callable[[nn.Module, nn.Module], Any] | None = None,
    call: Callable[..., torch.Tensor] | None = None,
) -> tuple[FrozenForward, ...] | None:
    """What is told of the frozen model beside a student; `after` follows each step."""
    recorder, student = Recorder(), nn.Linear(12, 3)
    with listening(recorder, {"net": net, "student": student}, accelerated=False):
        optimizer = torch.optim.SGD(student.parameters(), lr=0.01)
        for x in batches:
            with torch.no_grad():
                target = (call or net)(x)
            optimizer.zero_grad()
            (student(x) - target).square().sum().backward()
            optimizer.step()
            if after is not None:
                after(net, student)
    return recorder.close().setup.frozen


def test_a_teacher_that_was_trained_before_in_the_same_run() -> None:
    recorder, net, student = Recorder(), teacher().train().requires_grad_(True), nn.Linear(12, 3)
    with listening(recorder, {"net": net, "student": student}, accelerated=False):
        before = torch.optim.SGD(net.parameters(), lr=0.01)
        for x in shuffled(frozen.LATE // 8 + 1):
            before.zero_grad()
            net(x).square().sum().backward()
            before.step()
        net.eval().requires_grad_(False)
        optimizer = torch.optim.SGD(student.parameters(), lr=0.01)
        for x in shuffled(8):
            with torch.no_grad():
                target = net(x)
            optimizer.zero_grad()
            (student(x) - target).square().sum().backward()
            optimizer.step()
    (one,) = recorder.close().setup.frozen or ()
    assert 62 <= one.calls <= 64 and one.passes == pytest.approx(8.0, rel=0.25), "of its calls as a teacher alone"


def test_the_other_network_of_a_gan_is_no_teacher_though_its_weights_are_switched_off() -> None:
    recorder, one, other = Recorder(), nn.Linear(12, 12), nn.Linear(12, 12)
    with listening(recorder, {"one": one, "other": other}, accelerated=False):
        optimizers = [torch.optim.SGD(net.parameters(), lr=0.01) for net in (one, other)]
        for x in shuffled(8):
            for turn, net in enumerate((one, other)):
                (one, other)[1 - turn].requires_grad_(False)
                optimizers[turn].zero_grad()
                other(one(x)).square().sum().backward()
                optimizers[turn].step()
                (one, other)[1 - turn].requires_grad_(True)
                assert net.training
    assert not recorder.close().setup.frozen


def test_a_teacher_of_the_same_samples() -> None:
    (teachers,) = train(teacher(), shuffled(8)) or ()
    assert teachers.model == "Sequential" and teachers.output_bytes == 12 and teachers.wall_s > 0
    assert 62 <= teachers.calls <= 64 and teachers.passes == pytest.approx(8.0, rel=0.25)


@pytest.mark.parametrize(
    ("batches", "passes"),
    [
        (lambda: (X[at] for _ in range(4) for at in torch.arange(32).split(4)), pytest.approx(4.0, rel=0.05)),
        (lambda: (X[at] for _ in range(8) for at in torch.randperm(32)[:30].split(5)), pytest.approx(7.5, rel=0.1)),
    ],
    ids=["in order", "some left out"],
)
def test_passes_over_the_same_samples_are_counted(batches: Any, passes: Any) -> None:
    (found,) = train(teacher(), batches()) or ()
    assert found.passes == passes


@pytest.mark.parametrize(
    "batches",
    [
        lambda: (X[torch.randint(32, (4,))] for _ in range(64)),
        lambda: rolled_out(12),
        lambda: shuffled(1),
        lambda: (x + 0.01 * torch.randn_like(x) for x in shuffled(6)),
        lambda: (torch.where(torch.rand(4, 1) < 0.5, x, x.flip(1)) for x in shuffled(12)),
    ],
    ids=["with replacement", "for a while", "one epoch", "noise", "half of them flipped"],
)
def test_samples_that_do_not_come_again_each_epoch(batches: Any) -> None:
    assert train(teacher(), batches()) == ()


def rolled_out(times: int) -> Iterator[torch.Tensor]:
    """New samples each time, gone through twice: an update of a policy beside its reference model."""
    for _ in range(times):
        fresh = torch.rand(32, 12)
        for _epoch in range(2):
            for at in torch.randperm(32).split(4):
                yield fresh[at]


@pytest.mark.parametrize("layer", [nn.Dropout(), nn.BatchNorm1d(16)], ids=["dropout", "batch-statistics"])
def test_layers_whose_results_differ_in_training_mode(layer: nn.Module) -> None:
    assert train(teacher(layer).train(), shuffled(3)) == ()
    found = train(teacher(layer), shuffled(3))
    assert found is not None and len(found) == 1


def test_a_teacher_that_follows_its_student() -> None:
    def slowly(net: nn.Module, student: nn.Module) -> None:
        for mine, other in zip(net.parameters(), nn.Sequential(student).parameters(), strict=False):
            mine.data.mul_(0.999999).add_(other.data.mean(), alpha=1e-6)

    assert train(teacher(), shuffled(6), slowly) == ()


def test_gradients_that_go_through_it() -> None:
    recorder, net, maker = Recorder(), teacher(), nn.Linear(12, 12)
    with listening(recorder, {"net": net, "maker": maker}, accelerated=False):
        optimizer = torch.optim.SGD(maker.parameters(), lr=0.01)
        for x in shuffled(4):
            optimizer.zero_grad()
            net(maker(x)).sum().backward()
            optimizer.step()
    assert recorder.close().setup.frozen == ()


def test_a_backbone_under_a_head_and_an_evaluation() -> None:
    recorder, body, head = Recorder(), teacher(), nn.Linear(3, 2)
    held_out = torch.rand(8, 12)
    with listening(recorder, {"body": body, "head": head}, accelerated=False):
        optimizer = torch.optim.SGD(head.parameters(), lr=0.01)
        for _ in range(4):
            for x in shuffled(1):
                optimizer.zero_grad()
                head(body(x)).sum().backward()
                optimizer.step()
            with torch.no_grad():
                for x in held_out.split(4):
                    head(body(x))
    (one,) = recorder.close().setup.frozen or ()
    assert one.passes == pytest.approx(4.0, rel=0.3)


def test_rows_that_cannot_be_told_apart() -> None:
    flat = teacher()
    assert train(flat, shuffled(3), call=lambda x: flat(x.T.contiguous().T)) is None


def test_nothing_is_looked_at_for_long() -> None:
    recorder, student = Recorder(), nn.Linear(12, 3)
    with listening(recorder, {"student": student}, accelerated=False) as scope:
        optimizer = torch.optim.SGD(student.parameters(), lr=0.01)
        for at, x in enumerate(shuffled(8)):
            optimizer.zero_grad()
            student(x).sum().backward()
            optimizer.step()
            looks = any(getattr(one, "__self__", None).__class__ is frozen.Frozen for one in scope.stepped)
            assert looks == (at + 1 <= frozen.LATE), at
    assert recorder.close().setup.frozen == ()


def test_a_model_that_takes_hardly_any_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen, "WORTH", 2.0)
    assert train(teacher(), shuffled(6)) == ()


def test_what_lies_on_a_device_is_read_when_nothing_counts_as_the_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU tensors that say that they are elsewhere stand in for a GPU's. GPU: not yet run."""
    recorder, net, student = Recorder(), teacher(), nn.Linear(12, 3)
    counted: list[bool] = []
    copied = torch.Tensor.cpu

    def cpu(self: torch.Tensor) -> torch.Tensor:
        counted.append(recorder.mine())
        return copied(self)

    monkeypatch.setattr(torch.Tensor, "is_cpu", property(lambda self: False), raising=False)
    monkeypatch.setattr(torch.Tensor, "cpu", cpu)
    with listening(recorder, {"net": net, "student": student}, accelerated=False):
        optimizer = torch.optim.SGD(student.parameters(), lr=0.01)
        for x in shuffled(4):
            with torch.no_grad():
                target = net(x)
            optimizer.zero_grad()
            (student(x) - target).square().sum().backward()
            optimizer.step()
        assert recorder.setup().frozen is None, "not yet known"
        monkeypatch.undo()
        monkeypatch.setattr(frozen, "WORTH", 0.0)
        monkeypatch.setattr(torch.Tensor, "cpu", cpu)
    (one,) = recorder.close().setup.frozen or ()
    assert one.passes == pytest.approx(4.0, rel=0.1)
    assert counted and not any(counted)
