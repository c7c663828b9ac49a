"""Hears what goes on between processes and GPUs: collectives on the training thread, DataParallel's copies, `no_sync`.

DistributedDataParallel reduces gradients from C++ inside the backward, where nothing can be heard; its own sampled
clock says how long that takes, and is read once, at the end. Host seconds of a collective on a GPU are a lower bound:
it runs on the device. Proved with two gloo processes; GPU: not yet run on one.
"""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gpu_doctor import formatting
from gpu_doctor.capture.fence import Fence
from gpu_doctor.capture.taps import peers
from gpu_doctor.capture.taps.costly_calls import CallBook, Stand, book_of, timed
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.machine import cgroup, shm_bytes
from gpu_doctor.recording.setup import World

COMMUNICATION: Final = "communication"
SPREADING: Final = "data-parallel"
COLLECTIVES: Final = (
    *("all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_to_all", "all_to_all_single"),
    *("barrier", "monitored_barrier", "broadcast", "broadcast_object_list", "gather", "gather_object", "recv"),
    *("reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list", "send"),
)
_NAN: Final = float("nan")


class Listening:
    """What the tap knows of the process group so far."""

    def __init__(self, scope: TapScope, book: CallBook) -> None:
        self._scope, self._book = scope, book
        self._run = peers.run_number()
        self._shm_free_bytes = float((shm_bytes() or (_NAN,))[0])
        self._size, self._rank, self._local = 1, 0, 1
        self._killed_before, self._killed = cgroup.oom_kills(), _NAN
        self._models: list[weakref.ref[DistributedDataParallel]] = []
        self._newest: list[DistributedDataParallel] = []
        """Alive until another is met, or the run ends: their own figures are read when the loop is over."""
        self._by_rank: tuple[float, ...] | None = None
        self._reduce_s = self._hidden_s = _NAN
        self.unsynced = 0

    def told(self) -> World:
        """As of now; what the kernel did meanwhile is read once, when the run has ended."""
        return World(
            world_size=self._size,
            rank=self._rank,
            local_size=self._local,
            oom_kills=self._killed,
            visible_gpus=len(self._scope.recorder.facts.get("devices", ())),
            shm_free_bytes=self._shm_free_bytes,
            step_s_by_rank=self._by_rank or (),
            reduce_s=self._reduce_s,
            reduce_hidden_s=self._hidden_s,
            replicated=bool(self._models),
            unsynced=self.unsynced,
        )

    def look(self) -> bool:
        """Whether there is a process group of several; notes its size and this process' rank."""
        if not dist.is_available() or not dist.is_initialized():
            return False
        self._size, self._rank = dist.get_world_size(), dist.get_rank()
        told = os.environ.get("LOCAL_WORLD_SIZE", "")
        self._local = max(int(told), 1) if told.isdecimal() else self._size
        return self._size > 1

    def meet(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer steps for the first time: is its model replicated?"""
        self._look_into(self._scope.models.holding(p for group in optimizer.param_groups for p in group["params"]))

    def shown(self) -> None:
        """Further modules were found."""
        if self._scope.optimizers:
            self._look_into(self._scope.models.holding(self._scope.owned.alive()))

    def _look_into(self, modules: list[nn.Module]) -> None:
        if not self.look():
            return
        for module in modules:
            found = [part for part in module.modules() if isinstance(part, DistributedDataParallel)]
            self._newest = found or self._newest
            known = [ref() for ref in self._models]
            self._models += [weakref.ref(one) for one in found if not any(one is other for other in known)]

    def part(self) -> None:
        """The run or its process group ends: reads what is known only then. Never raises, hardly ever waits."""
        try:
            if self._by_rank is None and self.look():
                self._by_rank = ()
                if self._scope.recorder.mine():
                    self._scope.recorder.fold()
                own_s = peers.own_step_s(self._scope.recorder.table.steps(), self._spent_s())
                if own_s is not None:
                    self._by_rank = peers.exchanged(self._run, own_s)
        except Exception as error:
            self._scope.recorder.note(f"The ranks could not exchange their step times: {formatting.first_line(error)}")
        try:
            self._read_reducers()
        except Exception as error:
            self._scope.recorder.note(
                f"DistributedDataParallel's own figures could not be read: {formatting.first_line(error)}"
            )

    def end(self) -> None:
        """The run is over: no model is kept alive."""
        self.part()
        self._newest = []
        before, now = self._killed_before, cgroup.oom_kills()
        self._killed = _NAN if before is None or now is None else float(max(now - before, 0))

    def _spent_s(self) -> float:
        """Seconds of the collectives after the first step."""
        heard = sum(one.wall_s for one in self._book() if one.kind == COMMUNICATION)
        return max(heard - self._book.first_ns.get(COMMUNICATION, 0.0) * 1e-9, 0.0)

    def _read_reducers(self) -> None:
        """Mean seconds (torch samples its first ten backwards and then every hundredth, in ns)."""
        alive: list[Any] = [one for ref in self._models if (one := ref()) is not None]
        known: list[dict[str, Any]] = [one._get_ddp_logging_data() for one in alive]
        timed = [one for one in known if one.get("avg_backward_comm_time")]
        if timed:
            self._reduce_s = sum(one["avg_backward_comm_time"] for one in timed) * 1e-9
            self._hidden_s = sum(one.get("avg_backward_compute_comm_overlap_time", 0) for one in timed) * 1e-9
        elif alive:
            self._scope.recorder.note(
                "DistributedDataParallel timed no backward: the cost of reducing gradients is unknown."
            )


def tap(scope: TapScope) -> None:
    """Stand-ins for the collectives, for DataParallel's copies of model and batch, and for `no_sync`."""
    book, fence = book_of(scope), scope.recorder.fence
    state = Listening(scope, book)
    scope.tells("world", state.told, state.end)
    scope.optimized.append(state.meet)
    scope.found.append(state.shown)
    if dist.is_available():
        for name in COLLECTIVES:
            if hasattr(dist, name):
                where = f"torch.distributed:{name}"
                scope.patches.wrap(dist, name, functools.partial(Stand, fence, book, COMMUNICATION, where))
        scope.patches.wrap(dist, "destroy_process_group", functools.partial(_parting, fence, state))
        scope.patches.wrap(DistributedDataParallel, "no_sync", functools.partial(_unsynced, fence, state))
    for name in ("replicate", "scatter", "gather"):
        scope.patches.wrap(nn.DataParallel, name, functools.partial(timed, fence, book, SPREADING))


def _parting(fence: Fence, state: Listening, original: Callable[..., Any]) -> Callable[..., Any]:
    def begins(*args: Any, **kwargs: Any) -> None:
        if not args and not kwargs:
            state.part()

    return fence.around_in_graphs(original, begins, lambda token, result: None)


def _unsynced(fence: Fence, state: Listening, original: Callable[..., Any]) -> Callable[..., Any]:
    def begins(module: Any) -> None:
        state.unsynced += 1

    return fence.around_in_graphs(original, begins, lambda token, result: None)
