"""No candidate of a sweep gets more pairs of runs than were asked for."""

from __future__ import annotations

from typing import Any

import gpu_doctor
from gpu_doctor.trials import race
from gpu_doctor.trials.compare.effect import compare
from gpu_doctor.trials.rounds import MOST_PAIRS
from tests.support.rounds_parts import Cluster, out


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
