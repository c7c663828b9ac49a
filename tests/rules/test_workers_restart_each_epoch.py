"""workers-restart-each-epoch: edges of epochs that cost more than the batch they hold."""

from __future__ import annotations

import pytest
from found import asked, sick, top
from recordings import Loop

RULE = "workers-restart-each-epoch"
SHORT = Loop(workers=2, fetch=5.0, fetch_cpu=4.0, edge=100.0, steps_per_epoch=20)


def test_sick() -> None:
    found = sick(RULE, SHORT)
    # 4 edges of 100 ms in 99 steps of 10 ms, 5.6 ms of each for the first batch
    assert found.cost_share == pytest.approx(4 * 94.4 / (400 + 990), rel=0.03)
    cure = found.prescriptions[0]
    assert cure.settings == {"persistent_workers": True}
    assert cure.predicted_speedup == pytest.approx(1 / (1 - found.cost_share))
    assert top(SHORT) == RULE


def test_well() -> None:
    assert asked(RULE, SHORT.but(loader={"persistent_workers": True})) is None
    assert asked(RULE, SHORT.but(steps_per_epoch=1000)) is None


def test_a_slow_first_batch_is_not_the_start_of_workers() -> None:
    # Each edge waits 100 ms, and 95 of these is what a batch takes to fetch: it would be paid anyway.
    assert asked(RULE, SHORT.but(fetch=95.0)) is None


def test_no_workers_to_keep() -> None:
    assert asked(RULE, SHORT.but(workers=0)) is None


def test_a_loader_that_cannot_keep_them_is_advised_by_hand() -> None:
    refusing = SHORT.but(loader={"refusals": {"persistent_workers": "the iterator is there already"}})
    assert not sick(RULE, refusing).prescriptions[0].settings
