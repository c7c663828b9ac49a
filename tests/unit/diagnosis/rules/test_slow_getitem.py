"""slow-getitem: the fetch itself takes long, and workers cannot make up for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from tests.support.found import asked, named, sick, top
from tests.support.recordings import Loop, line, with_more

RULE = "slow-getitem"
COMPUTING = Loop(wait=30.0, workers=2, fetch=80.0, fetch_cpu=78.0, consumer_cpu=2.0, cores=2.0)
IN_MEMORY = Loop(
    wait=0.6, forward=0.2, backward=0.2, optimizer=0.1, batch=128, batch_bytes=1.3e5, collate=0.2, cores=2.0
)
"""128 samples out of memory one by one: 5 us a sample, in a loop of 0.5 ms."""


def test_sick() -> None:
    found = sick(RULE, COMPUTING)
    assert found.kind == "lost" and found.cost_share == pytest.approx(0.75, abs=0.01)
    assert top(COMPUTING) == RULE
    assert not any(one.settings for one in found.prescriptions)
    assert any("all of 2 cores for 40.0 ms" in one for one in found.evidence)


def test_it_names_the_dearest_lines_of_the_fetch_whatever_they_do() -> None:
    inside = tuple(
        replace(line(text, share, "data_wait"), in_worker=True, line=number)
        for number, (text, share) in enumerate([("image = decode(path)", 0.6), ("x = augment(image)", 0.3)])
    )
    said = [one for one in sick(RULE, COMPUTING.but(lines=inside)).evidence if "of the fetch" in one]
    assert [one.split()[0] for one in said] == ["60", "30"]


def test_data_in_memory_is_to_be_indexed_by_whole_batches() -> None:
    found = sick(RULE, IN_MEMORY)
    assert found.cost_share == pytest.approx(0.545, abs=0.02)
    assert "BatchSampler" in found.prescriptions[0].code
    assert named(IN_MEMORY) == [RULE]


ROWS = Loop(
    wait=14.0, forward=1.0, backward=1.2, optimizer=0.5, batch=2048, batch_bytes=3.4e5, fetch_cpu=13.8, consumer_cpu=2.7
).but(cores=2.0)
"""2048 rows out of memory one by one, 7 us each: two workers save some of a step, whole batches all of the fetch."""


def test_rows_in_memory_are_to_be_indexed_though_workers_would_help() -> None:
    found = sick(RULE, ROWS)
    assert found.cost_share == pytest.approx(14 / 16.7, abs=0.02)
    assert named(ROWS) == [RULE]
    own = ROWS.but(loader={"collate": "my_collate"})
    assert named(own) == ["loader-without-workers"], "a collate of the user's own is not to be lost"
    assert named(ROWS.but(batch=64)) == ["loader-without-workers"], "0.2 ms a sample are no look-up"


def test_the_code_is_for_the_loader_at_hand() -> None:
    ordered = IN_MEMORY.but(loader={"dataset": "TensorDataset", "sampler": "SequentialSampler", "drop_last": True})
    cure = sick(RULE, ordered).prescriptions[0]
    # whatever draws its samples now goes on to do so: data in order are not shuffled by the cure
    assert "BatchSampler(loader.sampler, batch_size=128, drop_last=True)" in cure.code
    assert "__getitem__" not in cure.text
    own = sick(RULE, IN_MEMORY).prescriptions[0]
    assert "`__getitem__` then gets the list" in own.text
    theirs = sick(RULE, IN_MEMORY.but(loader={"batch_size": None, "sampler": "SequentialSampler"})).prescriptions[0]
    assert theirs.code.startswith("sampler = loader.batch_sampler\n")


def test_the_code_delivers_the_same_samples() -> None:
    rows = torch.arange(20.0)
    loader = DataLoader(TensorDataset(rows), batch_size=6, drop_last=True)
    ordered = {"dataset": "TensorDataset", "sampler": "SequentialSampler", "drop_last": True, "batch_size": 6}
    names: dict[str, Any] = {"loader": loader, "DataLoader": DataLoader}
    exec(sick(RULE, IN_MEMORY.but(loader=ordered)).prescriptions[0].code, names)
    assert [one.tolist() for (one,) in names["loader"]] == [one.tolist() for (one,) in loader]


@pytest.mark.parametrize("loop", [IN_MEMORY, COMPUTING, Loop(wait=40.0, cores=1.0)])
def test_a_stream_is_not_told_to_index(loop: Loop) -> None:
    cure = sick(RULE, loop.but(loader={"dataset_kind": "iterable", "sampler": ""})).prescriptions[0]
    assert "__iter__" in cure.code
    assert "indices" not in cure.code and "ampler" not in cure.code and "indices" not in cure.text


WHOLE = {"batch_size": None, "sampler": "BatchSampler", "collate": "default_convert"}
SEEN = replace(line("return self.x[indices]", 0.4, "data_wait"), function="Rows.__getitems__")


@pytest.mark.parametrize("more", [{"loader": WHOLE}, {"lines": (SEEN,)}], ids=["asked for", "seen"])
def test_data_that_is_indexed_by_whole_batches_is_not_told_to_be(more: dict[str, Any]) -> None:
    little = IN_MEMORY.but(wait=0.04, fetch=0.04, **more)
    assert asked(RULE, little) is None, "nothing is cheaper than one indexing a batch"
    found = sick(RULE, IN_MEMORY.but(**more))  # but a share of 10 % is never silent
    assert "sample by sample" not in found.headline and "BatchSampler" not in found.prescriptions[0].code


@pytest.mark.parametrize(
    "loop",
    [
        Loop(),
        COMPUTING.but(wait=0.1, cores=16.0, workers=8),
        Loop(wait=1.0, edge=60.0, steps_per_epoch=10, workers=2, fetch=2.0, cores=2.0),  # its workers mostly wait
        Loop(wait=40.0, fetch_cpu=1.0, consumer_cpu=10.0, cores=2.0),  # the fetch waits: workers help
        COMPUTING.but(collate=60.0),  # the collate is another cause
    ],
)
def test_well(loop: Loop) -> None:
    assert asked(RULE, loop) is None


def test_a_wait_of_a_tenth_is_named_though_the_workers_have_time_to_spare() -> None:
    idle = Loop(wait=1.5, workers=2, fetch=6.0, cores=4.0)
    assert "time to spare" in sick(RULE, idle).headline
    assert named(idle.but(wait=0.8)) == []


def test_what_a_fetch_queues_for_a_core_is_told() -> None:
    (fetch,) = COMPUTING.recording().fetches
    queued = with_more(COMPUTING.but(fetch_cpu=20.0), fetches=(replace(fetch, queued_s=55e-3 * fetch.batches),))
    assert any("55.0 ms of waiting for a core" in one for one in sick(RULE, queued).evidence)
