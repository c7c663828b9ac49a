"""Shared parts of the knobs on the DataLoader: which loaders they change, why they refuse, and how they turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from math import gcd
from typing import Any

from gpu_doctor.cell import Edits
from gpu_doctor.recording import Settings, SettingValue, Setup
from gpu_doctor.trials.knobs.draft import Draft
from gpu_doctor.trials.knobs.found_loaders import meant, trained_from
from gpu_doctor.trials.knobs.knob import Knob, Refused, TrialScope

NO_LOADER = "The cell uses no DataLoader, so there is nothing to change."


class LoaderKnob(Knob):
    """A knob that is an argument of the DataLoader; each adds to `reason` what else speaks against a value."""

    kind: type[int]
    written_with = "loader"
    moves_draws = False
    """Random numbers are drawn elsewhere: in workers, and by torch for its workers at an epoch's start."""

    def found(self, setup: Setup) -> SettingValue | None:
        """See `Knob`."""
        loader = trained_from(setup)
        return None if loader is None else getattr(loader, self.name)

    def reason(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`: there is no training loader, one of them cannot, or the first has no workers for it."""
        if setup == Setup():
            return ""
        loaders = meant(setup)
        if not loaders:
            return NO_LOADER
        refused = next((said for loader in loaders if (said := loader.refusals.get(self.name, ""))), "")
        return refused or ("" if loaders[0].num_workers else self.needs_workers)

    def is_noop(self, value: SettingValue, setup: Setup) -> bool:
        """See `Knob`: there may be other loaders than the first, which have another value."""
        return False

    def draws_anew(self, setup: Setup) -> bool:
        """See `Knob`."""
        return self.moves_draws

    def turned(self, value: SettingValue, scope: TrialScope) -> AbstractContextManager[None]:
        """See `Knob`."""
        return loaders_turned(self.name, self.kind(value), scope)

    def code(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        return f"DataLoader(..., {self.name}={self.kind(value)})"

    def edit(self, settings: Settings, draft: Draft) -> Edits:
        """See `Knob`."""
        return draft.loaders.edits(settings)


def batch_sizes(value: int, setup: Setup) -> dict[str, int]:
    """Returns the batch size of every training loader, by the stem of its key, if the first loader has `value`.

    Loaders that a loop uses together (labelled and unlabelled rows, say) keep the ratio of their batch sizes.

    Raises:
        Refused: A batch size would not be a whole number.
    """
    sizes = {loader.stem: loader.batch_size for loader in meant(setup) if loader.batch_size is not None}
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


def _known(scope: TrialScope) -> list[Any]:
    """Returns the loaders in the namespace, and those that an earlier run iterated."""
    from torch.utils.data import DataLoader

    from gpu_doctor.capture.describe import named

    met = [loader for ref in scope.met if isinstance(loader := ref(), DataLoader)]
    return list({id(loader): loader for loader in (*named(scope.namespace, DataLoader), *met)}.values())


@contextmanager
def loaders_turned(knob: str, value: SettingValue, scope: TrialScope) -> Iterator[None]:
    """Sets `value` on every training loader, made before or inside the context, then restores all.

    Evaluation loaders stay unchanged. With the setup of a baseline, only loaders that it saw are turned; a loader of
    unknown role is turned, too, unless the knob changes its batches. Without a setup, all loaders are turned. If a
    loader that is not known to train does not support the value, a note says so and the run goes on: it may be unused.

    Raises:
        Refused: A loader that is known to train does not support the value.
    """
    from gpu_doctor.capture.describe import loaders
    from gpu_doctor.trials.knobs.loader_change import changing

    training = {loader.stem for loader in meant(scope.setup)}
    unable = {loader.stem for loader in meant(scope.setup) if loader.refusals.get(knob)}
    others = {loader.stem for loader in scope.setup.loaders if loader.role == "unknown"} - training
    turned = training | (others if knob != "batch_size" else set())
    only: Callable[[Any], bool] | None = (lambda loader: loaders.key_stem_of(loader) in turned) if training else None
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
    with changing(change, only, refused, _known(scope)):
        running = True
        yield
    if knob == "batch_size" and others:
        kept, which = ("One loader", "it") if len(others) == 1 else (f"{len(others)} loaders", "them")
        scope.notes.append(
            f"{kept} kept the batch size as written: it is not known whether the loop trains from {which}."
        )
