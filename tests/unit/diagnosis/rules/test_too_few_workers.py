"""too-few-workers: busy workers, and more of them would help."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from torch.utils.data import DataLoader, IterableDataset

from gpu_doctor.capture.describe.loaders import describe
from tests.support.found import asked, sick, top
from tests.support.recordings import Loop, with_more

RULE = "too-few-workers"
BUSY = Loop(wait=10.0, workers=2, fetch=40.0, fetch_cpu=1.0, consumer_cpu=10.0, cores=2.0)


def test_sick() -> None:
    found = sick(RULE, BUSY)
    assert found.kind == "lost" and found.cost_share == pytest.approx(0.5)
    cure = found.prescriptions[0]
    assert 4 <= int(cure.settings["num_workers"]) <= 8 and (cure.predicted_speedup or 0) > 1.6
    assert top(BUSY) == RULE


@pytest.mark.parametrize(
    "loop",
    [
        BUSY.but(wait=0.1, workers=6),
        BUSY.but(fetch_cpu=39.0, consumer_cpu=1.0),  # two workers compute on two cores: a third has none
        BUSY.but(fetch=4.0),  # workers fetch a tenth of the time: something else holds the batches up
        BUSY.but(wait=0.0, edge=200.0, steps_per_epoch=20, fetch=18.0),  # the edge of an epoch
    ],
)
def test_well(loop: Loop) -> None:
    assert asked(RULE, loop) is None


def test_a_loader_that_refuses_workers_is_advised_by_hand() -> None:
    cure = sick(RULE, BUSY.but(loader={"refusals": {"num_workers": "the dataset lives in __main__"}})).prescriptions[0]
    assert not cure.settings and cure.safety.value == "by-hand" and "__main__" in cure.text
    assert "num_workers=" in cure.code and (cure.predicted_speedup or 0) > 1.6


class Stream(IterableDataset[int]):
    """Items in one order, whichever worker asks."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(8))


def test_a_stream_that_workers_would_repeat_is_sharded_first() -> None:
    said = describe(DataLoader(Stream(), batch_size=4, num_workers=1)).refusals["num_workers"]
    stream = {"dataset_kind": "iterable", "refusals": {"num_workers": said}}
    cure = sick(RULE, BUSY.but(workers=1, fetch=20.0, loader=stream)).prescriptions[0]
    assert cure.text.startswith("Give each worker its own items") and not cure.settings
    assert cure.code.index("get_worker_info") < cure.code.index("num_workers=")


def test_how_often_no_batch_was_ready_is_named_where_it_was_counted() -> None:
    (fetch,) = BUSY.recording().fetches
    counted = with_more(BUSY, fetches=(replace(fetch, ready_batches=0.26, empty_share=0.95),))
    (said,) = (one for one in sick(RULE, counted).evidence if "ready" in one)
    assert said.startswith("95 %") and "0.26" in said
    assert not any("ready" in one for one in sick(RULE, BUSY).evidence)
