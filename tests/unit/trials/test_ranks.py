"""A job of several processes: no trial begins in one of them."""

from __future__ import annotations

import sys
import types

import pytest
import torch

import gpu_doctor
from gpu_doctor.trials.side_effects.ranks import LAUNCHERS, ranks
from tests.support.trial_starts import STARTS

SAID = "This loop trains in 4 processes (ranks)"


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for names in LAUNCHERS:
        for name in names:
            monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("start", STARTS)
def test_every_way_to_start_a_trial_is_refused(start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "2")
    space: dict[str, list[int]] = {"ran": []}
    case = gpu_doctor.case("ran.append(1)", space)
    assert STARTS[start](case).startswith(SAID)
    assert space["ran"] == [], "nothing is run"


@pytest.mark.parametrize(("number", "place"), LAUNCHERS)
def test_what_launchers_say_counts_where_this_process_has_a_place(
    number: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(number, "4")
    assert ranks(None).refusals == (), "a job's number says nothing of a notebook in it"
    monkeypatch.setenv(place, "0")
    (said,) = ranks(None).refusals
    assert said.startswith(SAID)
    monkeypatch.setenv(number, "1")
    assert ranks(None).refusals == ()
    monkeypatch.setenv(number, "2(x3)")
    assert ranks(None).refusals == ()


def test_a_process_group_counts_from_two_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 1)
    assert ranks(None).refusals == ()
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    (said,) = ranks(None).refusals
    assert said.startswith(SAID)


def test_horovods_size_is_read_where_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_begun() -> int:
        raise ValueError("Horovod has not been initialized; use hvd.init().")

    module = types.ModuleType("horovod.torch")
    monkeypatch.setitem(sys.modules, "horovod.torch", module)
    for size, refused in ((not_begun, 0), (lambda: 1, 0), (lambda: 4, 1)):
        monkeypatch.setattr(module, "size", size, raising=False)
        said = ranks(None).refusals
        assert len(said) == refused and all(one.startswith(SAID) for one in said)
