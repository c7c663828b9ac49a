"""What knobs on the DataLoader share: which loaders are meant, why they refuse, and how they are changed for a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import gcd
from typing import Any

from gpu_doctor.recording import SettingValue, Setup
from gpu_doctor.trials.knobs.found_loaders import meant
from gpu_doctor.trials.knobs.knob import Refused, TrialScope

MOST = 2**31 - 1
MOST_AT_ONCE = 256
"""Processes or threads. A worker takes about four of the 1024 files that a process may usually open (`ulimit -n`), and
a slip of the finger (`num_workers=100000`) must not take the machine down."""
NO_LOADER = "The cell uses no DataLoader, so there is nothing to change."


def loader_refusal(knob: str, setup: Setup) -> str:
    """Why no training loader of `setup` can honour `knob`: there is none, or the first one's reason."""
    found = meant(setup)
    return next((said for one in found if (said := one.refusals.get(knob, ""))), "") if found else NO_LOADER


def batch_sizes(value: int, setup: Setup) -> dict[str, int]:
    """The batch size of every training loader (by the stem of its key) when the first one's is `value`.

    Loaders that a loop draws from together (labelled and unlabelled rows, say) keep the ratio of their batches.

    Raises:
        Refused: if a batch would not be a whole number of samples.
    """
    sizes = {one.stem: one.batch_size for one in meant(setup) if one.batch_size is not None}
    first = next(iter(sizes.values()), 1)
    found: dict[str, int] = {}
    for stem, size in sizes.items():
        found[stem], rest = divmod(size * value, first)
        if rest or not found[stem]:
            raise Refused(
                f"The loop trains from loaders of batch size {first} and {size}, which keep their ratio: choose a "
                f"multiple of {first // gcd(first, size)}, not {value}."
            )
    return found


@contextmanager
def loaders_turned(knob: str, value: SettingValue, scope: TrialScope) -> Iterator[None]:
    """Gives every training loader `value`, made before or inside the context; then puts all back.

    Loaders that evaluate keep their settings: with a baseline's setup, only loaders that it saw are meant, and of those
    whose role it could not tell, what changes no batch is turned too. With no setup yet, all are meant. One that is
    not known to train and cannot is noted rather than ending the run: it may be unused.

    Raises:
        Refused: if a loader that is known to train cannot honour it.
    """
    from gpu_doctor.capture.describe import loaders
    from gpu_doctor.trials.knobs.loader_change import changing

    training = {one.stem for one in meant(scope.setup)}
    unable = {one.stem for one in meant(scope.setup) if one.refusals.get(knob)}
    others = {one.stem for one in scope.setup.loaders if one.role == "unknown"} - training
    turned = training | (others if knob != "batch_size" else set())
    only: Callable[[Any], bool] | None = (lambda one: loaders.key_stem_of(one) in turned) if training else None
    sizes = batch_sizes(int(value), scope.setup) if knob == "batch_size" else {}

    def change(loader: Any) -> dict[str, Any]:
        return {knob: sizes.get(loaders.key_stem_of(loader), value) if sizes else value}

    def refused(loader: Any, reason: str) -> None:
        # One that was there, looks like the run's and cannot what that could is left of an earlier version of the cell.
        stem = loaders.key_stem_of(loader)
        if stem in training and (running or stem in unable):
            raise Refused(reason)
        scope.notes.append(f"{knob}={value} was not applied to one {type(loader).__name__}: {reason}")

    running = False
    with changing(change, only, refused):
        running = True
        yield
    if knob == "batch_size" and others:
        kept, which = ("One loader", "it") if len(others) == 1 else (f"{len(others)} loaders", "them")
        scope.notes.append(
            f"{kept} kept the batch size as written: it is not known whether the loop trains from {which}."
        )


def whole_number(text: str, knob: str, least: int, most: int = MOST) -> int:
    """A count typed by a person.

    Raises:
        ValueError: if it is no whole number, below `least` or above `most`.
    """
    try:
        number = int(text.replace("_", "").strip())
    except ValueError:
        number = least - 1
    if number < least:
        raise ValueError(f"{knob} takes a whole number of at least {least}, such as {knob}={max(least, 4)}.")
    if number > most:
        raise ValueError(f"{knob} takes a whole number from {least} to {most}, such as {knob}={max(least, 4)}.")
    return number
