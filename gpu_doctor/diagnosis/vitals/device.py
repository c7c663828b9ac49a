"""Vitals of the device: how busy it was and why it idled, by a GPU's own clock, or by the host's on a CPU device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpu_doctor.recording import Steps
from gpu_doctor.recording.setup import Traffic
from gpu_doctor.recording.steps import ratio

PHASES: Final = ("forward", "backward", "optimizer")
"""Phases that are timed on the device."""

CAUGHT_UP_SHARE: Final = 0.8
"""Part of the GPU's time in steps, from which on it counts as keeping up with its host (80 % of steps in the
catalogue)."""


@dataclass(frozen=True)
class DeviceVitals:
    """Fields of Vitals on the device. On a GPU they cover the steps that the device's clock timed."""

    exposed_wait_share: float | None = None
    """Part of the wall-clock in which the device had nothing to do because of the loader: on a CPU device the wait, on
    a GPU the idle time by its own clock (an upper bound if the loader itself launches work)."""
    exposed_transfer_share: float | None = None
    """Part of the wall-clock in which the device had nothing to do because of copies to it, without `tripped_share`."""
    tripped_share: float = 0.0
    """Part of the wall-clock in which the device had nothing to do because of copies that bring back a tensor which a
    step had taken to the host."""
    gpu_gap_share: float | None = None
    """Part of the device's time in which it waited for batches or for the host, or only copied; without evaluations;
    device clock."""
    gpu_busy_share: float | None = None
    """1 - gap share, over the steps with device readings; an upper bound of busy time (gaps inside a phase unseen)."""
    gpu_forward_share: float | None = None
    """Part of the device's time between the first and the last work of a step's forwards, waits for launches in
    between included."""
    gpu_backward_share: float | None = None
    """Part of the device's time in a step's backwards, measured in the same way."""
    gpu_optimizer_share: float | None = None
    """Part of the device's time in a step's optimizers, measured in the same way. The rest of gpu_busy_share is the
    loss, clipping and the like."""
    caught_up_share: float | None = None
    """Part of the device's time in steps that lies in phases at whose end it had done all that its host had launched:
    the device kept up."""
    launching_share: float | None = None
    """Part of the wall-clock that lies in those phases: the most that launching takes. Waits and copies are no part of
    it."""

    @property
    def gpu_outruns_host(self) -> bool:
        """True if the host limits a GPU's steps: the GPU keeps up with it, and faster kernels gain nothing.

        False if this was not measured, and on a CPU device.
        """
        return (self.caught_up_share or 0.0) >= CAUGHT_UP_SHARE

    @property
    def gpu_idle_at_most(self) -> float:
        """Part of the device's time, 0..1, in which it may have had nothing to do.

        The device's clock sees the gaps between phases. It may also have idled within phases that the host takes longer
        to launch than the device to run; these are counted as a whole.
        """
        return min((self.gpu_gap_share or 0.0) + (self.launching_share or 0.0), 1.0)


def device(rest: Steps, on_gpu: bool) -> dict[str, float | None]:
    """Computes the fields of DeviceVitals but `tripped_share`, from the steps after warm-up.

    Args:
        rest: training steps after the warm-up.
        on_gpu: True if the loop trains on a GPU: its own clock is used. Otherwise the host's is.
    """
    if not on_gpu:
        return {
            "exposed_wait_share": ratio(rest.data_wait_s, rest.wall_s),
            "exposed_transfer_share": ratio(rest.transfer_s, rest.wall_s),
        }
    read = rest.where(rest.device_steps > 0)
    wall = read.wall_s * read.device_steps / read.count  # in a row of several steps, only some may have been timed
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


def without_round_trips(found: Mapping[str, Any], traffic: Traffic | None) -> dict[str, Any]:
    """Takes round trips (tensors that a step copies to the host and back) out of the vitals on copies to the device.

    Args:
        found: the vitals computed so far.
        traffic: the copies of the run; older files do not say which of them come back.

    Returns:
        `tripped_share`, and the corrected copies per step, bytes per step and `exposed_transfer_share`; empty if there
        were no round trips.
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
    remaining = {} if exposed is None else {"exposed_transfer_share": exposed - back}
    return own | remaining | {"tripped_share": back}
