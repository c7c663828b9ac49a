"""The worker_init_fn that sets how many threads a worker computes with; it can be pickled for spawned workers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch


class WorkerThreads:
    """A `worker_init_fn`: sets the threads of torch, OpenCV and BLAS, after what the loader's own one does."""

    def __init__(self, count: int, own: Callable[[int], None] | None) -> None:
        """`count`: threads of each worker. `own`: the loader's own `worker_init_fn`."""
        self.count, self.own = count, own
        self._with_opencv = "cv2" in sys.modules

    def __call__(self, worker: int) -> None:
        """Runs in the worker."""
        if self.own is not None:
            self.own(worker)
        torch.set_num_threads(self.count)
        if self._with_opencv or "cv2" in sys.modules:
            import_module("cv2").setNumThreads(0 if self.count == 1 else self.count)  # 0: none of its own
        if find_spec("threadpoolctl") is not None:  # numpy's BLAS has no switch of its own
            limits: Any = import_module("threadpoolctl").threadpool_limits
            self._limits = limits(limits=self.count, user_api="blas")
