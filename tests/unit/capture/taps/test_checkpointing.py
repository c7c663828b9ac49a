"""What activation checkpointing computes anew is heard, for both ways of torch's; the training stays the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import torch.utils.checkpoint as torchs
from torch import nn

from gpu_doctor.capture import patching, taps
from gpu_doctor.capture.fence import FencedContext
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.recording import Recording
from tests.support.one_tap import Ticking, batches

STEPS = 6


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    before = vars(torchs.CheckpointFunction)["backward"], torchs._recomputation_hook
    yield
    assert patching.active() == ()
    assert (vars(torchs.CheckpointFunction)["backward"], torchs._recomputation_hook) == before


class Net(nn.Module):
    """Two parts whose activations are not kept."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.first, self.last, self.options = nn.Linear(4, 8), nn.Linear(8, 1), options
        self.parts = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(2))
        self.calls = 0

    def part(self, part: nn.Module, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return part(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for part in self.parts:
            x = torchs.checkpoint(self.part, part, x, **self.options) if self.options else self.part(part, x)
        return self.last(x)


def train(net: Net, recorder: Recorder | None = None) -> list[float]:
    """Losses of a real loop, under the taps if there is a recorder."""
    optimizer, losses = torch.optim.SGD(net.parameters(), lr=0.1), []
    torch.manual_seed(1)
    loader = batches(8 * STEPS)

    def loop() -> None:
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(net(x).squeeze(1), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())

    if recorder is None:
        loop()
    else:
        with taps.listening(recorder, {"net": net}):
            loop()
    return losses


def heard(net: Net) -> Recording:
    recorder = Recorder(clock=Ticking())
    train(net, recorder)
    return recorder.close()


@pytest.mark.parametrize("reentrant", [True, False])
def test_each_part_of_each_step_is_counted(reentrant: bool) -> None:
    net = Net(use_reentrant=reentrant)
    recording = heard(net)
    again = recording.setup.recomputation
    assert net.calls == 2 * 2 * STEPS and again is not None and again.times == 2 * STEPS
    assert 0 < again.wall_s < float(recording.steps.backward_s.sum())
    assert len(recording.steps) == STEPS and recording.notes == ()


@pytest.mark.parametrize("reentrant", [True, False])
def test_the_results_of_all_operations_are_those_of_the_net_without_it(reentrant: bool) -> None:
    plain, again = heard(Net()).setup, heard(Net(use_reentrant=reentrant)).setup
    assert plain.recomputation is None and plain.graph_result_bytes and again.recomputation is not None
    shown, hidden = again.graph_result_bytes or 0.0, again.recomputation.result_bytes or 0.0
    assert bool(hidden) == reentrant, "else the graph of the loss shows them"
    # The operation that stands for a part has the part's result once more.
    assert plain.graph_result_bytes <= shown + hidden <= plain.graph_result_bytes * 1.5


@pytest.mark.parametrize("reentrant", [True, False])
def test_the_training_is_the_same(reentrant: bool) -> None:
    torch.manual_seed(0)
    one = Net(use_reentrant=reentrant)
    torch.manual_seed(0)
    other = Net(use_reentrant=reentrant)
    assert train(one) == train(other, Recorder(clock=Ticking()))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def fails_again(net: Net) -> Callable[..., torch.Tensor]:
    def part(part: nn.Module, x: torch.Tensor) -> torch.Tensor:
        net.calls += 1
        if net.calls > 2:
            raise ValueError("mine")
        return part(x)

    return part


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_the_second_forward_raises_is_the_users(reentrant: bool) -> None:
    net, recorder = Net(use_reentrant=reentrant), Recorder(clock=Ticking())
    net.part = fails_again(net)  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="mine"):
        train(net, recorder)
    assert recorder.notes == []


@pytest.mark.parametrize("reentrant", [True, False])
def test_an_error_of_ours_takes_us_off_and_nothing_else(reentrant: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpu_doctor.capture.taps.checkpointing import Recomputed

    monkeypatch.setattr(Recomputed, "begin", lambda self: 1 / 0)
    net, recorder = Net(use_reentrant=reentrant), Recorder(clock=Ticking())
    assert len(train(net, recorder)) == STEPS and net.calls == 2 * 2 * STEPS
    assert recorder.close().notes


@pytest.mark.parametrize("where", ["begin", "end"])
def test_an_interrupt_in_what_is_ours_leaves_no_context_of_torchs_open(where: str) -> None:
    entered = []

    class Context:
        def __enter__(self) -> None:
            entered.append(self)

        def __exit__(self, *raised: Any) -> None:
            entered.remove(self)

    heard = Mock(**{f"{where}.side_effect": KeyboardInterrupt})
    with pytest.raises(KeyboardInterrupt), FencedContext(Mock(), Context(), heard.begin, heard.end):
        pass
    assert entered == [] and getattr(heard, where).called
