"""What the tests of rounds out share."""

from __future__ import annotations

from typing import Any

from gpu_doctor.trials import race
from gpu_doctor.trials.executors.parcel import as_bytes
from gpu_doctor.trials.executors.ray import RoundsOut
from gpu_doctor.trials.rounds import MOST_PAIRS
from tests.support.recordings import Loop


class Cluster:
    """As much of Ray as waits for rounds: each round comes back after as many waits as its candidate is slow."""

    class exceptions:
        class OutOfMemoryError(Exception):
            pass

    def __init__(self, waits: dict[int, int], wait_ms: dict[int, float]) -> None:
        self.waits, self.wait_ms = waits, wait_ms
        self.sent: list[int] = []
        self.left: dict[str, int] = {}
        self.cancelled: list[str] = []

    def remote(self, luggage: Any, key: str, against: Any, settings: Any, steps: int, seconds: float, made: int) -> str:
        workers = settings["num_workers"]
        assert made == self.sent.count(workers), "which of its pairs this is, as the sides take turns"
        self.sent.append(workers)
        name = f"{workers}-{self.sent.count(workers)}"
        self.left[name] = self.waits[workers]
        return name

    def wait(self, tasks: list[str], num_returns: int, timeout: float) -> tuple[list[str], list[str]]:
        for one in tasks:
            self.left[one] -= 1
        ready = [one for one in tasks if self.left[one] <= 0]
        return ready[:num_returns], [one for one in tasks if one not in ready[:num_returns]]

    def get(self, task: str) -> dict[str, Any]:
        if task.startswith("9"):
            raise self.exceptions.OutOfMemoryError("Task was killed due to the node running low on memory.\nMore.")
        workers = int(task.partition("-")[0])
        base = Loop(steps=60, wait=30.0).recording()
        other = Loop(steps=60, wait=self.wait_ms[workers], settings={"num_workers": workers}).recording()
        return {"bases": (as_bytes(base),), "candidates": (as_bytes(other),)}

    def cancel(self, task: str, force: bool) -> None:
        self.cancelled.append(task)
        self.left[task] = 0


def out(cluster: Cluster, entries: list[race.Entry], part: float = 0.5, pairs: int = MOST_PAIRS) -> RoundsOut:
    """Rounds of entries each of which takes such a part of the cluster."""
    places = {id(entry): (cluster, part) for entry in entries}
    return RoundsOut(cluster, places, "luggage", {}, 60, 600.0, 600.0, pairs)
