"""Optimizers that step within the backward, on autograd's own thread as on a GPU: the loop's steps all the same."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import Variable

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import listening
from tests.support.one_tap import batches, model

# On a CUDA device every backward pass, with the hooks of its parameters, runs on a thread of autograd's. On a CPU the
# thread that calls does the work itself, until sixty passes lie within each other (torch's `MAX_DEPTH`): then one of
# autograd's goes on while the caller waits.
DEEP = 61


def _run(tensor: torch.Tensor) -> None:
    """The engine's own call, not `Tensor.backward`: nobody hears that one pass lies in another."""
    engine: Any = Variable._execution_engine
    engine.run_backward(
        (tensor,), (torch.ones_like(tensor),), False, False, (), allow_unreachable=True, accumulate_grad=True
    )


class _Floor(torch.autograd.Function):
    """Its backward runs that of the floor below, the lowest that of the loss."""

    @staticmethod
    def forward(ctx: Any, door: torch.Tensor, losses: list[torch.Tensor], floor: int) -> torch.Tensor:
        ctx.losses, ctx.floor = losses, floor
        return losses[0].detach().clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        with torch.enable_grad():
            _run(_on(ctx.losses, ctx.floor - 1) if ctx.floor else ctx.losses[0])
        return torch.zeros(()), None, None


def _on(losses: list[torch.Tensor], floor: int) -> torch.Tensor:
    apply: Any = _Floor.apply
    found: torch.Tensor = apply(torch.zeros((), requires_grad=True), losses, floor)
    return found


def elsewhere(loss_of: Callable[[], torch.Tensor]) -> torch.Tensor:
    """The loss, whose `backward` will run that of `loss_of()` on a thread of autograd's while the caller waits."""
    with torch.enable_grad():
        return _on([loss_of()], DEEP)


def stepping_in_backward(net: nn.Module, threads: set[int], zeroes: bool = True) -> list[torch.optim.Optimizer]:
    """An optimizer for every parameter, stepped as soon as the gradient is there; says on which threads."""
    optimizers: dict[torch.Tensor, torch.optim.SGD] = {p: torch.optim.SGD([p], lr=0.01) for p in net.parameters()}

    def hook(p: torch.Tensor) -> None:
        threads.add(threading.get_ident())
        optimizers[p].step()
        if zeroes:
            optimizers[p].zero_grad()

    for p in net.parameters():
        p.register_post_accumulate_grad_hook(hook)
    return list(optimizers.values())


def here(loss_of: Callable[[], torch.Tensor]) -> torch.Tensor:
    """As `elsewhere`, on the thread that calls: what a CPU does."""
    return loss_of()


@pytest.mark.parametrize("where", [here, elsewhere])
@pytest.mark.parametrize("loader", [True, False], ids=["loader", "no loader"])
def test_a_step_is_one_wherever_its_hooks_run(where: Callable[..., torch.Tensor], loader: bool) -> None:
    recorder, net, threads = Recorder(), model(), set[int]()
    kept = stepping_in_backward(net, threads)
    held = [(torch.rand(8, 4), torch.zeros(8)) for _ in range(30)]
    with listening(recorder):
        for x, _ in batches(240) if loader else held:
            where(lambda x=x: net(x).square().mean()).backward()
    assert (threading.get_ident() in threads) == (where is here)
    recording = recorder.close()
    assert recorder.thread == 0 and recording.notes == ()
    steps = recording.steps
    assert steps.count.sum() == 30 and (steps.kind == 0).all()
    assert steps.samples[1:].sum() == 232  # without a loader the first model is met at its first step
    assert (steps.backward_s > 0).all() and (where is elsewhere or (steps.optimizer_s > 0).all())
    assert (steps.forward_s > 0).sum() >= 28  # at first nobody knows the model
    assert len(kept) == 4 and len(recording.losses.step) >= 29


def test_another_loops_backward_is_not_taken_for_this_ones() -> None:
    net, threads = model(), set[int]()
    stepping_in_backward(net, threads)

    def other_loop() -> None:
        for x, _ in [(torch.rand(8, 4), None)] * 3:
            elsewhere(lambda x=x: net(x).square().mean()).backward()  # type: ignore[misc]

    recorder = Recorder()
    with listening(recorder):
        thread = threading.Thread(target=other_loop)
        thread.start()
        thread.join()
        assert recorder.mine() and not recorder.log.trains
        mine = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(3):
            net(torch.rand(8, 4)).sum()
            mine.step()
    assert threading.get_ident() not in threads and thread.ident not in threads
    assert recorder.close().steps.count.sum() == 3


def test_an_optimizer_that_raises_there_is_no_step() -> None:
    recorder, net, calls = Recorder(), model(), list[None]()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def fail(*_: object) -> None:
        calls.append(None)
        if len(calls) == 2:
            raise ValueError("the user's own")

    optimizer.register_step_pre_hook(fail)
    next(net.parameters()).register_post_accumulate_grad_hook(lambda _: optimizer.step())
    with listening(recorder):
        for i in range(4):
            loss = elsewhere(lambda: net(torch.rand(8, 4)).square().mean())
            if i == 1:
                with pytest.raises(ValueError, match="the user's own"):
                    loss.backward()
            else:
                loss.backward()
    assert recorder.close().steps.count.sum() == 3
