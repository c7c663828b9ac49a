"""Programs run on the simulated CUDA as they are written."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.support.simulated_cuda import SimulatedCuda, on_cuda
from tests.support.simulated_device import SimulatedDevice


@pytest.fixture(autouse=True)
def cuda() -> Iterator[SimulatedCuda]:
    with SimulatedCuda(SimulatedDevice(exact=True), kernel_ms=0.1, cards=2) as found:
        yield found


def test_what_is_made_of_a_tensor_on_a_card_lies_there() -> None:
    net = nn.Linear(4, 2, device="cuda:1")
    found = [net.weight, copy.deepcopy(net).bias, net(torch.rand(3, 4, device="cuda:1")), torch.stack([net.bias] * 2)]
    assert {str(one.device) for one in found} == {"cuda:1"}
    assert net.weight.to("cuda:0").get_device() == 0
    assert not on_cuda(net.weight.cpu()) and not on_cuda(net.weight.to(torch.device("cpu"), torch.float64))
    with pytest.raises(TypeError):
        net.weight.detach().numpy()


def test_a_default_device_is_the_card() -> None:
    torch.set_default_device("cuda")
    try:
        assert nn.Linear(4, 2)(torch.rand(3, 4)).is_cuda
    finally:
        torch.set_default_device(None)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.filterwarnings("error")
def test_a_loader_pins_and_copies_from_it_are_not_waited_for(workers: int, cuda: SimulatedCuda) -> None:
    data = TensorDataset(torch.rand(8, 4), torch.rand(8))
    for x, y in DataLoader(data, batch_size=4, pin_memory=True, num_workers=workers):
        cuda.launch(50.0)
        assert x.is_pinned() and y.is_pinned()
        x.to("cuda", non_blocking=True)
        assert cuda.device.idle_from > cuda.device.now
        x.to("cuda")
        assert cuda.device.idle_from <= cuda.device.now


@pytest.mark.filterwarnings("error")
def test_a_step_in_mixed_precision() -> None:
    net = nn.Linear(4, 2).cuda()
    optimizer, scaler = torch.optim.AdamW(net.parameters()), torch.amp.GradScaler("cuda")
    for _ in range(2):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = net(torch.rand(3, 4, device="cuda")).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert all(one["exp_avg"].is_cuda for one in optimizer.state.values())
    assert f"{loss:.3f}" == f"{loss.item():.3f}"


def test_streams_wait_for_each_other_and_events_tell_the_time(cuda: SimulatedCuda) -> None:
    side, begin, end = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    with torch.cuda.stream(side):
        cuda.launch(5.0)
    torch.cuda.current_stream().wait_event(side.record_event())
    torch.zeros(2, device="cuda").record_stream(side)
    end.record()
    assert not end.query()
    torch.cuda.synchronize()
    assert begin.elapsed_time(end) == pytest.approx(5.0, abs=0.2)
