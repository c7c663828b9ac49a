"""Knob `num_workers`: how many processes fetch batches ahead of the loop."""

from __future__ import annotations

from gpu_doctor.diagnosis import SHARD_FIRST
from gpu_doctor.recording import SettingValue, Setup
from gpu_doctor.trials.knobs.count import MOST_AT_ONCE, CountKnob, powers_up_to
from gpu_doctor.trials.knobs.found_loaders import meant, trained_from
from gpu_doctor.trials.knobs.loader import LoaderKnob

WORKERS_PER_CORE = 4
"""Offered up to so many per usable core: a dataset that waits (disk, network) gains beyond the cores, 7.5x on two cores
with eight workers; one that computes never does, and the forecast says so."""


class NumWorkers(LoaderKnob, CountKnob):
    """See `Knob`."""

    name = label = "num_workers"
    changes = (
        "Random augmentation draws other numbers in workers. A generator of the dataset, such as default_rng(0), gives "
        "the same numbers in every worker."
    )
    front = moves_draws = True
    least, most = 0, MOST_AT_ONCE

    def counts(self, setup: Setup) -> set[int]:
        """See `CountKnob`."""
        loader = trained_from(setup)
        written = 0 if loader is None else loader.num_workers
        most = max(WORKERS_PER_CORE * max(1, round(setup.usable_cores)), written)
        return {0, 1, written, max(1, int(setup.usable_cores))} | powers_up_to(most)

    def reason(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        said = super().reason(value, setup)
        alone = int(value) <= 1 and all(loader.num_workers <= 1 for loader in meant(setup))
        return "" if alone and SHARD_FIRST in said else said  # a single worker delivers each item of a stream once

    def code(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        loader, line = trained_from(setup), super().code(value, setup)
        if int(value) == 0 and loader is not None and loader.num_workers > 0:
            return line + "  # and without prefetch_factor, persistent_workers and multiprocessing_context"
        return line


KNOB = NumWorkers()
