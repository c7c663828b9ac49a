"""Vitals of the device: what the loop cost it, by its own clock on a GPU, by the host's on a CPU device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpu_doctor.recording import Steps
from gpu_doctor.recording.setup import Traffic
from gpu_doctor.recording.steps import ratio

PHASES: Final = ("forward", "backward", "optimizer")
"""Phases whose work is told apart on the device."""


CAUGHT_UP_SHARE: Final = 0.8
"""The GPU keeps up with its host for at least 80 % of its time in steps (catalogue, of steps)."""


@dataclass(frozen=True)
class DeviceVitals:
    """A part of Vitals. On a GPU all are of the steps that were marked on it."""

    exposed_wait_share: float | None = None
    """Part of the wall-clock in which the device had nothing to do because of the loader: on a CPU device the wait,
    on a GPU what its own clock says of it (at most, where the loader itself launches work)."""
    exposed_transfer_share: float | None = None
    """The same because of copies to it, those in `tripped_share` left out."""
    tripped_share: float = 0.0
    """The same because of copies that bring back what a step had taken to the host: a part of these round trips."""
    gpu_gap_share: float | None = None
    """Part of the device's time in which it waited for batches or for the host, or did nothing but copy; evaluations
    left out; device clock."""
    gpu_busy_share: float | None = None
    """1 - gap share, over the steps with device readings; an upper bound of busy time (gaps inside a phase unseen)."""
    gpu_forward_share: float | None = None
    """Of the device's time, that between the first and the last work of a step's forwards (what the device waits for
    launches in between is part of it),"""
    gpu_backward_share: float | None = None
    gpu_optimizer_share: float | None = None
    """of its backwards, and of its optimizers; the rest of gpu_busy_share is the loss, clipping and the like."""
    caught_up_share: float | None = None
    """Of the device's time in steps, that of phases at whose end it had done all that its host had launched."""
    launching_share: float | None = None
    """The same of the wall-clock: the most that launching takes. Waits and copies are no part of it."""

    @property
    def gpu_outruns_host(self) -> bool:
        """The host is what limits a GPU's steps, not the GPU: it keeps up, and faster kernels gain nothing.

        False where nobody counted, and on a CPU device.
        """
        return (self.caught_up_share or 0.0) >= CAUGHT_UP_SHARE

    @property
    def gpu_idle_at_most(self) -> float:
        """Part of the device's time, 0..1, in which it may have had nothing to do.

        Its own clock sees the gaps between phases. Within those that the host takes longer to launch than the device to
        run, it may have idled as well.
        """
        return min((self.gpu_gap_share or 0.0) + (self.launching_share or 0.0), 1.0)


def device(rest: Steps, on_gpu: bool) -> dict[str, float | None]:
    """The fields above, of the steps after warm-up: host shares on a CPU device; on a GPU, where its clock was read."""
    if not on_gpu:
        return {
            "exposed_wait_share": ratio(rest.data_wait_s, rest.wall_s),
            "exposed_transfer_share": ratio(rest.transfer_s, rest.wall_s),
        }
    read = rest.where(rest.device_steps > 0)
    wall = read.wall_s * read.device_steps / read.count  # a row of several steps may have been read for some of them
    whole = read.gpu_gap_s + read.gpu_s
    # While the queue fills, a host runs ahead of its device: these steps lasted as long as the device took for them.
    wall = wall * max(ratio(whole, wall) or 1.0, 1.0)
    return {
        "exposed_wait_share": ratio(read.exposed_wait_s, wall),
        "exposed_transfer_share": ratio(read.exposed_transfer_s, wall),
        "gpu_gap_share": ratio(read.gpu_gap_s, whole),
        "gpu_busy_share": ratio(read.gpu_s, whole),
        "caught_up_share": ratio(read.gpu_caught_up_s, read.gpu_s),
        "launching_share": ratio(read.gpu_caught_up_s, wall),
        **{f"gpu_{phase}_share": ratio(getattr(read, f"gpu_{phase}_s"), whole) for phase in PHASES},
    }


def tripped(found: Mapping[str, Any], traffic: Traffic | None) -> dict[str, Any]:
    """What is left for the loop's own copies where tensors go to the host and back: those copies are the trips'.

    Args:
        found: the vitals so far.
        traffic: the copies of the run; older files do not tell which of them come back.
    """
    exposed, run_s = found.get("exposed_transfer_share"), found.get("run_s")
    if traffic is None or not traffic.round_trip_bytes or not traffic.to_device or not run_s:
        return {}
    back = min(traffic.round_trip_copy_s / run_s, exposed or 0.0)
    parts = {
        "transfers_per_step": 1.0 - traffic.round_trips / traffic.to_device,
        "transfer_bytes_per_step": 1.0 - traffic.round_trip_bytes / traffic.to_device_bytes,
    }
    own = {name: found[name] * max(part, 0.0) for name, part in parts.items() if found.get(name) is not None}
    left = {} if exposed is None else {"exposed_transfer_share": exposed - back}
    return own | left | {"tripped_share": back}
