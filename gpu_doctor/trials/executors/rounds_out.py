"""The rounds of a trial that are out on a Ray cluster: sent, waited for, taken back, cancelled; never left behind."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from gpu_doctor.recording import Settings
from gpu_doctor.trials import race
from gpu_doctor.trials.executors.posted import of_bytes
from gpu_doctor.trials.executors.remote import Returned
from gpu_doctor.trials.morepairs import MOST_PAIRS, needs_more
from gpu_doctor.trials.rounds import went_well

if TYPE_CHECKING:
    from gpu_doctor.trials.case import Case

POLL_S: Final = 0.2
"""Stop is looked for so often."""
FIRST_ROUNDS: Final = 6
"""So many rounds of a candidate are held against the trial's seconds by what their runs took alone."""
ROUNDING: Final = 1e-9
"""Parts of a cluster are added up in floating point: three thirds of it are all of it."""
CANCEL_S: Final = 5.0
"""So long a task that is cancelled may take to put its workers away before its process is ended."""


@dataclass
class RoundsOut:
    """The rounds that are out on the cluster."""

    ray: Any
    places: Mapping[int, tuple[Any, float]]
    """id of a candidate's entry -> the task that runs its rounds, and the part of the cluster that one takes."""
    luggage: Any
    against: Settings
    steps: int
    seconds: float
    limit_s: float
    pairs: int = MOST_PAIRS
    """Rounds of a candidate, at most."""
    key: str = field(default_factory=lambda: uuid4().hex)
    out: dict[Any, tuple[race.Entry, float]] = field(default_factory=dict)
    """Task -> its candidate, and when it was sent (monotonic seconds)."""

    def run(self, case: Case, entries: Sequence[race.Entry], racing: bool) -> None:
        """Sends rounds until every candidate is decided, Stop comes, or it is interrupted; leaves no task behind."""
        try:
            while not case.stopped:
                waiting = [
                    one for one in entries if one.going and not any(one is entry for entry, _ in self.out.values())
                ]
                waiting.sort(key=lambda one: len(one.candidates))  # everyone's first pair, then the second
                for entry in waiting:
                    if not self._has_room_for(entry):  # a smaller one behind it waits too: else this may never go
                        break
                    self._send(entry)
                if not self.out:
                    return
                done = sum(not entry.going for entry in entries)
                case._say(f"{done} of {len(entries)} decided, {len(self.out)} on the cluster")
                ready, _ = self.ray.wait(list(self.out), num_returns=1, timeout=POLL_S)
                for one in ready:
                    self._back(one)
                self._overdue()
                if racing and ready:
                    race.drop_the_worse(entries)
                    self._cancel([one for one, (entry, _) in self.out.items() if not entry.going])
        finally:
            for entry in entries:
                entry.stopped = entry.going
            self._cancel(list(self.out))

    def _has_room_for(self, entry: race.Entry) -> bool:
        """Whether the cluster has a place for one more round, by what those that are out ask for."""
        taken = sum(self.places[id(one)][1] for one, _ in self.out.values())
        return taken + self.places[id(entry)][1] <= 1.0 + ROUNDING

    def _send(self, entry: race.Entry) -> None:
        given = (self.luggage, self.key, dict(self.against), entry.settings, self.steps, self.seconds)
        task, _ = self.places[id(entry)]
        self.out[task.remote(*given)] = (entry, time.monotonic())

    def _back(self, one: Any) -> None:
        """A round has come back, or has failed."""
        entry, sent = self.out.pop(one)
        entry.seconds += time.monotonic() - sent
        try:
            back = Returned(**self.ray.get(one))
            bases, candidates = [of_bytes(file) for file in back.bases], [of_bytes(file) for file in back.candidates]
        except Exception as error:
            memory = isinstance(error, self.ray.exceptions.OutOfMemoryError)
            entry.failed_as = "out-of-memory" if memory else "failed"
            entry.failure, entry.going = f"the trial's task was lost on the cluster: {_cause(error)}", False
            return
        entry.bases += bases
        entry.candidates += candidates
        entry.refusal, entry.failure = back.refusal, back.failure
        whole = len(bases) == len(candidates) == 1
        good = whole and all(map(went_well, (*bases, *candidates)))
        more = good and len(entry.candidates) < self.pairs and needs_more(entry.bases, entry.candidates)
        measured_s = sum(one.duration_s for one in (*entry.bases, *entry.candidates))
        # The first rounds may have waited for a place on the cluster; after some, what goes there and back counts too.
        spent_s = measured_s if len(entry.candidates) < FIRST_ROUNDS else entry.seconds
        entry.going = more and spent_s < self.seconds

    def _overdue(self) -> None:
        late = [one for one, (_, sent) in self.out.items() if time.monotonic() - sent > self.limit_s]
        for one in late:
            entry, _ = self.out[one]
            entry.failure = f"the cluster gave no answer within {self.limit_s:.0f} s"
            entry.going = False
        self._cancel(late)

    def _cancel(self, tasks: list[Any]) -> None:
        """Ends tasks: as an interrupt would, and by force where that does not help."""
        for one in tasks:
            self.ray.cancel(one, force=False)
        if tasks:
            _, stuck = self.ray.wait(tasks, num_returns=len(tasks), timeout=CANCEL_S)
            for one in stuck:
                self.ray.cancel(one, force=True)
        for one in tasks:
            self.out.pop(one, None)


def _cause(error: BaseException) -> str:
    """What ended a task, without Ray's own traceback."""
    cause = getattr(error, "cause", None)
    shown = cause if isinstance(cause, BaseException) else error
    return f"{type(shown).__name__}: {first_line(shown)}"


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
