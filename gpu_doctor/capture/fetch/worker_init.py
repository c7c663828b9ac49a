"""The `worker_init_fn` that puts the meter on the fetchers of a loader's workers.

It is a module of its own because a spawned worker imports it, and must not import the taps with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any


class WorkerInit:
    """The `worker_init_fn` of a metered loader: runs the user's first, then installs the meter; picklable for spawn."""

    def __init__(self, user: Callable[[int], None] | None, path: str, first_slot: int) -> None:
        """Args: user: the loader's own `worker_init_fn`. path: the slot file. first_slot: slot of worker 0."""
        self._user, self._path, self._first_slot = user, path, first_slot

    def __call__(self, worker_id: int) -> None:
        """Runs in the worker: the user's function first, then the meter."""
        if self._user is not None:
            self._user(worker_id)
        with contextlib.suppress(Exception):  # a worker without its meter is better than none
            self._meter(self._first_slot + worker_id)

    def _meter(self, slot: int) -> None:
        """Wraps torch's creation of fetchers, so that each class of fetcher gets the meter."""
        # Imported here, so that a failing import of ours does not end the worker.
        from torch.utils.data import _DatasetKind

        from gpu_doctor.capture.fetch.meter import WorkerMeter, meter_class
        from gpu_doctor.capture.fetch.tally import MOST_SLOTS, SlotFile
        from gpu_doctor.capture.patching import Patches

        if slot >= MOST_SLOTS:
            return
        meter, patches, seen = WorkerMeter(SlotFile(self._path), slot), Patches(), set[type]()

        def noticing(create: Callable[..., Any]) -> Any:
            """Wraps `create_fetcher`: the class of each new fetcher gets the meter."""

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
