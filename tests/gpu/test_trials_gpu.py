"""Trials on a GPU: each knob turned for real and put back, the state bit for bit as before, memory freed.

GPU: not yet run on one. Cells and digest are tested on the CPU in tests/integration/test_device_kinds.py, what
looks on in tests/unit/trials/test_knobs.py.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gpu_doctor
from gpu_doctor.capture import patching
from gpu_doctor.recording import Settings
from gpu_doctor.trials import knobs
from gpu_doctor.trials.case import Case
from tests.support import memory_cell
from tests.support.cells import notebook
from tests.support.cells.device import IMAGES, NAMES, kind, on
from tests.support.everything import Everything
from tests.support.looking_on import Seen, looking
from tests.support.restoring import ENDINGS, OUTCOMES, as_before, tried

MIB = 1 << 20
STEPS = 8
ENDED = ("completed", "budget-reached")


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """The environment and the allocator's cache are left as they were found."""
    variables, folder, places = dict(os.environ), Path.cwd(), list(sys.path)
    gc.collect()
    torch.cuda.empty_cache()
    yield
    as_before(variables, folder, places)
    gc.collect()
    torch.cuda.empty_cache()


def images(folder: Path) -> tuple[Case, dict[str, Any]]:
    """A notebook that trains on images, and its cell after one run."""
    one = on(IMAGES, "cuda")
    space = notebook(one, folder)
    case = gpu_doctor.case(one.code, space)
    case.run()
    return case, space


def no_half(seen: Seen) -> bool:
    """Neither autocast nor anything else is turned."""
    return set(seen.autocast) == {None} and set(seen.results) == {torch.float32} and not any(seen.fused)


KNOBS: dict[str, tuple[Settings, Callable[[Seen], bool]]] = {
    "nothing but threads": (
        {"threads": 1},
        lambda seen: no_half(seen) and not any(seen.pinned + seen.benchmark + seen.channels_last),
    ),
    "amp bf16": ({"amp": "bf16"}, lambda seen: set(seen.autocast) == set(seen.results) == {torch.bfloat16}),
    "amp fp16": ({"amp": "fp16"}, lambda seen: set(seen.autocast) == set(seen.results) == {torch.float16}),
    "pin_memory": ({"pin_memory": True}, lambda seen: all(seen.pinned)),
    "tf32": ({"tf32": True}, lambda seen: set(seen.matmul) == {"high"} and all(seen.convolutions)),
    "channels_last": ({"channels_last": True}, lambda seen: all(seen.channels_last)),
    "cudnn_benchmark": ({"cudnn_benchmark": True}, lambda seen: all(seen.benchmark)),
    "fused_optimizer": ({"fused_optimizer": True}, lambda seen: all(one is True for one in seen.fused)),
    "compile": ({"compile": True}, lambda seen: True),
}


@pytest.mark.parametrize("name", KNOBS)
def test_a_knob_is_turned_for_real_and_put_back(name: str, tmp_path: Path) -> None:
    settings, turned = KNOBS[name]
    case, space = images(tmp_path)
    for knob, value in settings.items():
        if said := knobs.KNOBS[knob].reason(value, knobs._with_loaders(case.recordings[0].setup, settings)):
            pytest.skip(said)
    before, allocated = Everything(space), torch.cuda.memory_allocated()
    with looking(case, space, at_modules=name != "compile") as seen:
        effect = case.trial(settings, steps=STEPS, seconds=240.0, pairs=1)
    assert effect.outcome in ENDED, effect.reason
    assert effect.not_restored == ()
    assert len(seen.fused) == STEPS and turned(seen)
    base, candidate = case.trials[-1]
    assert not [note for note in candidate.notes if "changed nothing" in note or "could not" in note]
    assert len(base.losses.value) == len(candidate.losses.value) == STEPS
    assert np.allclose(base.losses.value, candidate.losses.value, rtol=0.1)  # it trains, and the same
    after = Everything(space)
    assert before.differences(after) == [] and before.digest == after.digest
    assert patching.active() == ()
    gc.collect()
    assert torch.cuda.memory_allocated() <= allocated + 16 * MIB


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("name", NAMES)
def test_everything_is_as_it_was_however_it_ended(name: str, ending: str, tmp_path: Path) -> None:
    one = kind(name, "cuda")
    space = notebook(one, tmp_path)
    before, after, outcome = tried(one, ending, space, {"fused_optimizer": True} if ending == "normal" else None)
    wanted = OUTCOMES.get(ending, ending)
    assert outcome == wanted or (ending == "normal" and outcome in (*ENDED, "refused"))
    assert before.differences(after) == [] and before.digest == after.digest


HUNGRY = """
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 1 << 20), nn.ReLU(), nn.Linear(1 << 20, 1)).to("cuda")
opt = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
loader = DataLoader(TensorDataset(torch.randn(1 << 17, 8)), batch_size=8)
def train(most):
    for step, (x,) in enumerate(loader):
        opt.zero_grad()
        net(x.to("cuda")).square().mean().backward()
        opt.step()
        if step + 1 >= most:
            break
"""


def test_a_batch_that_does_not_fit_is_an_outcome_and_its_memory_is_freed() -> None:
    """A batch of 1 << 17 needs 512 GiB for its first layer alone."""
    space: dict[str, Any] = {"__name__": "__main__", "torch": torch}
    exec("from torch import nn\nfrom torch.utils.data import DataLoader, TensorDataset\n" + HUNGRY, space)
    case = gpu_doctor.case("train(20)", space)
    case.run()
    before = Everything(space)
    gc.collect()
    torch.cuda.empty_cache()
    allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    effect = case.trial({"batch_size": 1 << 17}, steps=4, seconds=120.0)
    assert effect.outcome == "out-of-memory"
    gc.collect()
    assert torch.cuda.memory_allocated() <= allocated + 16 * MIB
    # The baseline's batches may still lie in the allocator's cache; what the large one had tried does not.
    assert torch.cuda.memory_reserved() <= reserved + 512 * MIB
    after = Everything(space)
    assert before.differences(after) == [] and before.digest == after.digest
    assert case.trial({"batch_size": 16}, steps=4, seconds=30.0, pairs=1).outcome in ENDED


def test_memory_that_ran_out_piece_by_piece_is_freed(tmp_path: Path) -> None:
    """The candidate keeps what it makes until the card is full: its frames must not outlive it."""
    one = on(IMAGES, "cuda")
    space = notebook(one, tmp_path)
    space["hoards"] = False
    cell = one.code + "    kept = []\n    while hoards:\n        kept.append(torch.empty(1 << 28, device=device))\n"
    case = gpu_doctor.case(cell, space)
    case.run()
    before = Everything(space)
    gc.collect()
    torch.cuda.empty_cache()
    allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()

    def began(recorder: Any, role: str) -> None:
        space["hoards"] = role == "candidate"

    case.on_begin = began
    assert case.trial({"threads": 1}, steps=4, seconds=60.0).outcome == "out-of-memory"
    assert space["hoards"] is False  # put back too
    gc.collect()
    assert torch.cuda.memory_allocated() <= allocated + 16 * MIB
    assert torch.cuda.memory_reserved() <= reserved + 512 * MIB
    after = Everything(space)
    assert before.differences(after) == [] and before.digest == after.digest


def test_a_treatment_leaves_everything_as_it_was(tmp_path: Path) -> None:
    case, space = images(tmp_path)
    before = Everything(space)
    plan = case.treat(max_trials=2, steps=STEPS, seconds=20.0)
    after = Everything(space)
    assert before.differences(after) == [] and before.digest == after.digest
    assert all(one.outcome in (*ENDED, "refused") for one in plan.effects)
    assert set(plan.settings) <= set(knobs.KNOBS)


def test_a_trials_peak_is_the_loops_own() -> None:
    """The state that is kept lies on the card beside it: 256 MiB of weights, and as much of their momenta."""
    space = memory_cell.space("cuda", batch=1, tokens=1)
    case = gpu_doctor.case("train(500)", space)
    case.run()
    own = memory_cell.peak_bytes(space, 1)
    torch.cuda.reset_peak_memory_stats()
    case.trial({"threads": 1}, steps=600, seconds=120.0, pairs=1)
    known = [side.peak_bytes for side in case.trials[-1] if side.peak_bytes == side.peak_bytes]
    assert known, "the first side raises the process' peak, and its peak is known; no later one need do so"
    assert known == [pytest.approx(own, abs=64 * MIB)] * len(known)
