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
        from torch.utils.data import _DatasetKind

        from gpu_doctor.capture.fetch.meter import WorkerMeter, meter_class
        from gpu_doctor.capture.fetch.tally import MOST_SLOTS, SlotFile
        from gpu_doctor.capture.patching import Patches

        if slot >= MOST_SLOTS:
            return
        meter, patches, seen = WorkerMeter(SlotFile(self._path), slot), Patches(), set[type]()

        def noticing(create: Callable[..., Any]) -> Any:
            def create_fetcher(*args: Any, **options: Any) -> Any:
                __tracebackhide__ = True
                fetcher = create(*args, **options)
                with contextlib.suppress(Exception):  # a fetcher without a meter is better than none
                    if (kind := type(fetcher)) not in seen and hasattr(kind, "fetch"):
                        seen.add(kind)
                        meter_class(patches, kind, meter)
                return fetcher

            return staticmethod(create_fetcher)

        patches.wrap(_DatasetKind, "create_fetcher", noticing)  # torch makes the fetcher after this function
