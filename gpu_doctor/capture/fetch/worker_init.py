"""What a loader's workers run when they start: the meter goes on their fetchers.

A module of its own, for a worker that is spawned imports it: it must not bring the taps along.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any


class WorkerInit:
    """The `worker_init_fn` of a metered loader: the user's own first, then the meter; picklable for spawn."""

    def __init__(self, user: Callable[[int], None] | None, path: str, first_slot: int) -> None:
        self._user, self._path, self._first_slot = user, path, first_slot

    def __call__(self, worker_id: int) -> None:
        """Runs in the worker."""
        if self._user is not None:
            self._user(worker_id)
        with contextlib.suppress(Exception):  # a worker without its meter is better than none
            self._meter(self._first_slot + worker_id)

    def _meter(self, slot: int) -> None:
        # Imported here: what a worker cannot import of ours must not end it.
        import time
        from multiprocessing.util import Finalize

        from torch.utils.data import _DatasetKind
        from torch.utils.data._utils import fetch as torch_fetch

        from gpu_doctor.capture.fetch.meter import UNDER, WorkerMeter, metered, noticed
        from gpu_doctor.capture.fetch.tally import MOST_SLOTS, SlotFile

        if slot >= MOST_SLOTS:
            return
        meter = WorkerMeter(SlotFile(self._path), slot)
        Finalize(None, meter.end, exitpriority=0)

        def meter_class(kind: Any) -> None:
            # A forked worker inherits the training process' wrapper: the meter goes on what is under it.
            plain = getattr(kind.fetch, UNDER, kind.fetch)
            kind.fetch = metered(plain, meter, time.process_time)

        for fetcher in (torch_fetch._MapDatasetFetcher, torch_fetch._IterableDatasetFetcher):
            meter_class(fetcher)
        create = _DatasetKind.create_fetcher
        create = getattr(create, UNDER, create)
        _DatasetKind.create_fetcher = staticmethod(noticed(create, meter_class))  # type: ignore[method-assign]
