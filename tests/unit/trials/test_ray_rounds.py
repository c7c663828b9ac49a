"""Rounds that are out on a cluster: given up early, cancelled, failed; on a stand-in that says when each comes back."""

from __future__ import annotations

from typing import Any

import pytest

import gpu_doctor
from gpu_doctor.trials import race
from gpu_doctor.trials.compare.effect import compare
from gpu_doctor.trials.rounds import MOST_PAIRS
from tests.support.rounds_parts import Cluster, out


def raced(cluster: Cluster) -> list[race.Entry]:
    entries = [race.Entry({"num_workers": workers}) for workers in cluster.waits]
    case = gpu_doctor.case("1 + 1", {})
    out(cluster, entries).run(case, entries)
    return entries


def test_a_round_that_is_out_is_cancelled_once_its_candidate_is_clearly_worse() -> None:
    cluster = Cluster({0: 2, 4: 3}, {0: 30.0, 4: 1.0})  # 0 is back first, and its second round is out when 4 comes
    entries = raced(cluster)
    assert cluster.cancelled == ["0-2"]
    assert entries[0].dropped.startswith("stopped after 1 pair of runs: num_workers=4")
    assert [len(entry.candidates) for entry in entries] == [1, 2]
    assert not any(entry.stopped for entry in entries)


def test_a_task_that_the_cluster_ends_for_its_memory_did_not_fit() -> None:
    entries = raced(Cluster({9: 1}, {9: 1.0}))
    case = gpu_doctor.case("1 + 1", {})
    effect = race.concluded(case, entries[0], {})
    assert (effect.outcome, case.effects) == ("out-of-memory", [effect])
    assert effect.reason.endswith("OutOfMemoryError: Task was killed due to the node running low on memory.")


def test_an_interrupt_leaves_what_came_back_and_says_what_was_still_out() -> None:
    cluster = Cluster({0: 1, 4: 9}, {0: 30.0, 4: 1.0})
    entries = [race.Entry({"num_workers": workers}) for workers in cluster.waits]
    case = gpu_doctor.case("1 + 1", {})

    def interrupting(progress: str) -> None:
        if entries[0].candidates:
            raise KeyboardInterrupt

    case.say = interrupting  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        out(cluster, entries).run(case, entries)
    effects = [race.concluded(case, entry, {}) for entry in entries]
    assert [one.outcome for one in effects] == ["stopped", "stopped"]
    assert effects[0].speedup is not None and effects[1].speedup is None
    assert len(cluster.cancelled) == 2


def test_as_many_rounds_are_out_as_there_are_places_and_a_large_one_is_not_passed_by() -> None:
    cluster = Cluster({0: 1, 1: 1, 2: 1}, {0: 30.0, 1: 30.0, 2: 30.0})
    entries = [race.Entry({"num_workers": workers}) for workers in cluster.waits]
    rounds = out(cluster, entries)
    for entry, part in zip(entries, (1 / 3, 1.0, 1 / 3), strict=True):
        rounds.places[id(entry)] = (cluster, part)  # type: ignore[index]
    most: list[list[int]] = []
    wait = cluster.wait

    def waiting(tasks: list[str], num_returns: int, timeout: float) -> tuple[list[str], list[str]]:
        most.append([int(one[0]) for one in tasks])
        return wait(tasks, num_returns, timeout)

    cluster.wait = waiting  # type: ignore[method-assign]
    rounds.run(gpu_doctor.case("1 + 1", {}), entries)
    assert most[:3] == [[0], [1], [2, 0]], "the whole cluster is waited for, then the small ones share it"
    assert all(sum(1.0 if one == 1 else 1 / 3 for one in tasks) <= 1.001 for tasks in most)


class Wandering(Cluster):
    """Its candidate is faster in one round and slower in the next: no interval becomes clear."""

    def get(self, task: str) -> dict[str, Any]:
        workers, _, number = task.partition("-")
        self.wait_ms = {int(workers): 20.0 if int(number) % 2 else 45.0}
        return super().get(task)


def test_no_candidate_gets_more_pairs_than_were_asked_for() -> None:
    case = gpu_doctor.case("1 + 1", {})
    for pairs, sent in ((3, 3), (MOST_PAIRS, MOST_PAIRS)):
        cluster, entry = Wandering({4: 1}, {}), race.Entry({"num_workers": 4})
        out(cluster, [entry], pairs=pairs).run(case, [entry])
        assert len(cluster.sent) == len(entry.candidates) == sent
    assert compare(entry.bases, entry.candidates).verdict == "inconclusive"
