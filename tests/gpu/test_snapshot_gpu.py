"""State that lies on a GPU, kept and put back bit for bit: on the card, on the host, and where the card is full.

GPU: not yet run on one. The cells and the digest are tested on the CPU in tests/integration/test_device_kinds.py.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gpu_doctor.machine.torch_memory import held_bytes
from gpu_doctor.trials.snapshot.snapshot import Snapshot
from tests.support.cells import notebook
from tests.support.cells.device import NAMES, kind
from tests.support.everything import Everything

MIB = 1 << 20


@pytest.fixture(autouse=True)
def an_empty_card() -> Iterator[None]:
    """What other tests have left to the allocator is given back."""
    gc.collect()
    torch.cuda.empty_cache()
    yield
    gc.collect()
    torch.cuda.empty_cache()


def losses(space: dict[str, Any], steps: int = 6) -> list[float]:
    """Of more steps of the kind with autocast and a scaler: all of its state has a part in them."""
    found = []
    for x, y in list(space["loader"])[:steps]:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.cross_entropy(space["net"](x.cuda()), y.cuda())
        space["opt"].zero_grad()
        space["scaler"].scale(loss).backward()
        space["scaler"].step(space["opt"])
        space["scaler"].update()
        space["sched"].step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("on_host", [False, True], ids=["on the card", "on the host"])
@pytest.mark.parametrize("name", NAMES)
def test_all_of_it_is_back_bit_for_bit(name: str, on_host: bool, tmp_path: Path) -> None:
    one = kind(name, "cuda")
    space = notebook(one, tmp_path)
    before = Everything(space)
    snapshot = Snapshot.take(space, to_host=on_host)
    assert snapshot.unrestorable == ()
    for _ in range(2):  # as often as one likes
        exec(compile(one.code, "<cell>", "exec"), space)
        torch.cuda.manual_seed(99)
        torch.backends.cudnn.allow_tf32 = not torch.backends.cudnn.allow_tf32
        assert Everything(space).digest != before.digest
        assert snapshot.restore() == ()
        after = Everything(space)
        assert before.differences(after) == [] and before.digest == after.digest


def test_training_goes_on_with_the_same_numbers(tmp_path: Path) -> None:
    space = notebook(kind(NAMES[0], "cuda"), tmp_path)
    snapshot = Snapshot.take(space)
    first = losses(space)
    drawn = torch.rand(4, device="cuda").tolist(), torch.rand(4).tolist()
    snapshot.restore()
    assert losses(space) == first
    assert (torch.rand(4, device="cuda").tolist(), torch.rand(4).tolist()) == drawn


def test_copies_lie_on_the_card_or_on_the_host_as_asked() -> None:
    weights = torch.randn(16 * MIB, device="cuda")
    space: dict[str, Any] = {"weights": weights, "view": weights[: 8 * MIB]}
    index, before = torch.cuda.current_device(), torch.cuda.memory_allocated()
    kept = Snapshot.take(space)
    assert held_bytes(index) == 64 * MIB == torch.cuda.memory_allocated() - before
    del kept
    gc.collect()
    kept = Snapshot.take(space, to_host=True)
    assert held_bytes(index) == 0 and kept.bytes and torch.cuda.memory_allocated() == before


def test_a_card_that_is_short_of_memory_keeps_nothing_of_it() -> None:
    weights = torch.randn(64 * MIB, device="cuda")  # 256 MiB
    expected, index = weights.sum().item(), torch.cuda.current_device()
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    others = torch.empty(free - 768 * MIB, dtype=torch.uint8, device="cuda")
    before = torch.cuda.memory_allocated()
    kept = Snapshot.take({"weights": weights})
    assert held_bytes(index) == 0 and torch.cuda.memory_allocated() == before
    weights.zero_()
    assert kept.restore() == () and weights.sum().item() == expected
    del others


def test_a_state_that_was_moved_off_the_card_comes_back_to_it() -> None:
    net = nn.Linear(8, 8).cuda()
    place, values = net.weight.data_ptr(), net.weight.detach().cpu().clone()
    for on_host in (False, True):
        snapshot = Snapshot.take({"net": net}, to_host=on_host)
        net.cpu()
        with torch.no_grad():
            net.weight.zero_()
        assert snapshot.restore() == ()
        assert net.weight.is_cuda and net.weight.data_ptr() == place
        assert torch.equal(net.weight.cpu(), values)
