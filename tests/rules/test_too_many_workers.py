"""too-many-workers: more computing workers than cores, and fewer are forecast to be faster."""

from __future__ import annotations

from found import asked, sick
from recordings import Loop

RULE = "too-many-workers"
# Two cores give 12 + 12 ms of CPU in 12 ms, yet a step takes 14.
COMPUTES = {"forward": 5.0, "backward": 5.0, "optimizer": 2.0, "consumer_cpu": 12.0, "cores": 2.0, "cpu_util": 97.0}
CROWDED = Loop(wait=2.0, workers=8, fetch=50.0, fetch_cpu=12.0, **COMPUTES)


def test_sick() -> None:
    found = sick(RULE, CROWDED)
    assert 0.05 < found.cost_share < 0.15
    cure = found.prescriptions[0]
    assert cure.settings == {"num_workers": 2}
    assert cure.predicted_speedup is not None and cure.predicted_speedup > 1.05


def test_well() -> None:
    assert asked(RULE, CROWDED.but(workers=2, fetch=25.0)) is None


def test_a_fetch_that_waits_may_have_more_workers_than_cores() -> None:
    # As recorded: 8 workers sleep 14 ms a batch, 0.9 ms of it on a core, and the training takes both cores.
    own = {"forward": 0.7, "backward": 0.8, "optimizer": 0.4, "cores": 2.0, "cpu_util": 92.0}
    sleeping = Loop(wait=0.9, workers=8, fetch=14.4, fetch_cpu=0.93, consumer_cpu=4.3, **own)
    assert asked(RULE, sleeping) is None


def test_crowding_that_costs_nothing_is_left_alone() -> None:
    # The step is as long as the cores need for its work: fewer workers would not be faster.
    assert asked(RULE, CROWDED.but(wait=0.6)) is None
