"""One round of a trial on another machine: baseline and candidate next to each other, recordings back."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from gpu_doctor import formatting
from gpu_doctor.recording import Recording, Settings
from gpu_doctor.trials.executors.parcel import Parcel, as_bytes, unpack
from gpu_doctor.trials.rounds import BLOCK_SHARE
from gpu_doctor.trials.runner import Runner
from gpu_doctor.trials.snapshot.tensors import SnapshotTooLarge

WARM_STEPS: Final = 5
"""Steps as written before the first round of a fresh process, so that no baseline pays for what is only slow once."""
_warm: dict[str, Recording] = {}
"""The key of the trials that this process warmed up for -> the recording of that."""


@dataclass(frozen=True)
class Returned:
    """What a round gave, in plain data."""

    bases: tuple[bytes, ...] = ()
    """Recordings as saved."""
    candidates: tuple[bytes, ...] = ()
    refusal: str = ""
    """Why nothing was run."""
    failure: str = ""
    """Why nothing could be run."""


def one_round(
    luggage: bytes,
    key: str,
    against: Settings,
    settings: Settings,
    steps: int,
    seconds: float,
    made: int = 0,
) -> Mapping[str, Any]:
    """Runs a pair of sides on this machine.

    Args:
        luggage: what `pack` made, from the user's own kernel.
        key: names it, so that a process warms up for it once.
        against: knob values of the baseline side.
        settings: knob values of the candidate side.
        steps: of one side.
        seconds: of the whole trial that this round belongs to.
        made: pairs before this one.

    Returns:
        The fields of a `Returned`.
    """
    try:
        parcel = unpack(luggage)
    except Exception as error:
        return {"failure": _unpackable(error)}
    with acting_as_main(parcel.namespace):
        try:
            return _pair(parcel, key, against, settings, (steps, seconds), made)
        except SnapshotTooLarge as too_large:
            return {"refusal": str(too_large)}


def _pair(
    parcel: Parcel,
    key: str,
    against: Settings,
    settings: Settings,
    budget: tuple[int, float],
    made: int,
) -> Mapping[str, Any]:
    case = Runner(parcel.code, parcel.namespace, name=parcel.name)
    case.allowed = parcel.allowed
    run = parcel.known_run
    if run is not None:
        case.recordings.append(run)
    parcel.enter()
    steps, seconds = budget
    with case.aside() as aside:
        rounds = aside.rounds(elsewhere=made)
        goes_on = True
        if key not in _warm:
            # Where nothing is known of the loop, as written: what can be turned is told by that.
            side, warm_s = against if run is not None else {}, BLOCK_SHARE * seconds
            goes_on = rounds.side(side, "baseline", min(steps, WARM_STEPS), warm_s, rounds.bases)
            _warm.clear()
            _warm[key] = rounds.bases[-1]
        if goes_on:  # else what came of it is the answer: the code fails as written
            if run is None:
                case.recordings.append(_warm[key])
            rounds.bases.clear()
            rounds.pair("", against, settings, steps, seconds)
    # The kernel's own state was never touched: what could not be put back here is only said of these runs.
    said = tuple(f"On the cluster's machine: {one}" for one in aside.lost)
    return {
        "bases": tuple(as_bytes(one) for one in rounds.bases),
        "candidates": tuple(as_bytes(replace(one, notes=(*one.notes, *said))) for one in rounds.candidates),
    }


def _unpackable(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        return (
            f"the cluster's machines have no module {error.name!r}: install it there, or send your own files along "
            "with ray.init(runtime_env={'working_dir': '.'})"
        )
    return (
        f"the variables of the cell could not be rebuilt there ({type(error).__name__}: {formatting.first_line(error)})"
    )


@contextmanager
def acting_as_main(namespace: dict[str, Any]) -> Iterator[None]:
    """Lets `__main__` be the notebook for a while, as its classes say: loader workers send their instances by name."""
    if namespace.get("__name__") != "__main__":
        yield
        return

    def look_up(name: str) -> Any:
        try:
            return namespace[name]
        except KeyError:
            raise AttributeError(f"module '__main__' has no attribute {name!r}") from None

    notebook, before = types.ModuleType("__main__"), sys.modules["__main__"]
    notebook.__getattr__ = look_up  # type: ignore[method-assign]
    sys.modules["__main__"] = notebook
    try:
        yield
    finally:
        sys.modules["__main__"] = before
