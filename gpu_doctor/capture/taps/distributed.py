"""Notes the process group that a training belongs to.

Nothing is asked of the other ranks: each rank that watches itself leaves a recording of its own.
"""

from __future__ import annotations

import os
from typing import Any, Final

import torch.distributed as dist

from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.machine import cgroup, shm_bytes
from gpu_doctor.recording.setup import World

_NAN: Final = float("nan")


class Listening:
    """What the tap knows of the process group so far."""

    def __init__(self, scope: TapScope) -> None:
        self._scope = scope
        self._shm_free_bytes = float((shm_bytes() or (_NAN,))[0])
        self._size, self._rank, self._local = 1, 0, 1
        self._killed_before, self._killed = cgroup.oom_kills(), _NAN

    def told(self) -> World:
        """As of now; what the kernel did meanwhile is read once, when the run has ended."""
        return World(
            world_size=self._size,
            rank=self._rank,
            local_size=self._local,
            oom_kills=self._killed,
            visible_gpus=len(self._scope.recorder.facts.get("devices", ())),
            shm_free_bytes=self._shm_free_bytes,
        )

    def look(self, _: Any = None) -> None:
        """Reads the size of the process group and this process' rank, if there is a group."""
        if not dist.is_available() or not dist.is_initialized():
            return
        self._size, self._rank = dist.get_world_size(), dist.get_rank()
        told = os.environ.get("LOCAL_WORLD_SIZE", "")
        self._local = max(int(told), 1) if told.isdecimal() else self._size

    def end(self) -> None:
        """Looks once more, and counts the processes that the kernel killed since the run began."""
        self.look()
        before, now = self._killed_before, cgroup.oom_kills()
        self._killed = _NAN if before is None or now is None else float(max(now - before, 0))


def tap(scope: TapScope) -> None:
    """Fact `world` of the setup."""
    state = Listening(scope)
    scope.add_fact("world", state.told, state.end)
    scope.optimized.append(state.look)
