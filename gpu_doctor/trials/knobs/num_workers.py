"""Knob `num_workers`: how many processes fetch batches ahead of the loop."""

from __future__ import annotations

from contextlib import AbstractContextManager

from gpu_doctor.cell import Edits
from gpu_doctor.diagnosis import SHARD_FIRST, Safety
from gpu_doctor.recording import Settings, SettingValue, Setup
from gpu_doctor.trials.knobs.draft import Draft
from gpu_doctor.trials.knobs.found_loaders import meant, trained_from
from gpu_doctor.trials.knobs.knob import Choice, TrialScope
from gpu_doctor.trials.knobs.loader import MOST_AT_ONCE, loader_refusal, loaders_turned, whole_number

WORKERS_PER_CORE = 4
"""Offered up to so many per usable core: a dataset that waits (disk, network) gains beyond the cores, 7.5x on two cores
with eight workers; one that computes never does, and the forecast says so."""


class NumWorkers:
    """See `Knob`."""

    name = "num_workers"
    label = "num_workers"
    safety = Safety.SAFE
    changes = (
        "Random augmentation draws other numbers in workers. A generator of the dataset, such as default_rng(0), gives "
        "the same numbers in every worker."
    )
    front = True
    written_with = "loader"

    def found(self, setup: Setup) -> int | None:
        loader = trained_from(setup)
        return None if loader is None else loader.num_workers

    def choices(self, setup: Setup) -> tuple[Choice, ...]:
        written = self.found(setup) or 0
        most = max(WORKERS_PER_CORE * max(1, round(setup.usable_cores)), written)
        counts = {0, 1, written, max(1, int(setup.usable_cores))}
        counts.update(2**power for power in range(1, 10) if 2**power <= most)
        return tuple(Choice(count, str(count), self.refusal(count, setup)) for count in sorted(counts))

    def parsed(self, text: str) -> int:
        return whole_number(text, self.name, 0, MOST_AT_ONCE)

    def refusal(self, value: SettingValue, setup: Setup) -> str:
        if value == self.found(setup):
            return ""
        said = loader_refusal(self.name, setup)
        alone = int(value) <= 1 and all(one.num_workers <= 1 for one in meant(setup))
        return "" if alone and SHARD_FIRST in said else said  # a single worker delivers each item of a stream once

    def turned(self, value: SettingValue, scope: TrialScope) -> AbstractContextManager[None]:
        return loaders_turned(self.name, int(value), scope)

    def code(self, value: SettingValue, setup: Setup) -> str:
        loader = trained_from(setup)
        line = f"DataLoader(..., num_workers={int(value)})"
        if int(value) == 0 and loader is not None and loader.num_workers > 0:
            return line + "  # and without prefetch_factor, persistent_workers and multiprocessing_context"
        return line

    def edit(self, settings: Settings, draft: Draft) -> Edits:
        return draft.loaders.edits(settings)


KNOB = NumWorkers()
