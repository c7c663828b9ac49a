"""Vitals of hardware that affect the speed: the card's clocks, other processes on it, its link, its energy.

GPU: not yet run on one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gpu_doctor import formatting
from gpu_doctor.diagnosis.vitals.trend import steps_done
from gpu_doctor.machine.cards import HELD_BIT, IDLE_BIT, POWER_CAP_BIT, THROTTLE_BITS, link_gb_per_s, served_cuda
from gpu_doctor.recording import Column, Recording, Steps

FEWEST_READINGS: Final = 3
LOADED_PCT: Final = 30.0
"""NVML utilisation, in per cent, from which on a reading is taken under load, unless the clocks were low because the
card idled: an idle card lowers clocks and link."""


@dataclass(frozen=True)
class HardwareVitals:
    """Fields of Vitals on the hardware.

    They are readings of the card that the loop trains on, under load, after warm-up, unless said otherwise. If it
    trains on no card, the last three fields describe the first card that this process sees.
    """

    throttle_shares: Mapping[str, float] | None = None
    """Reason (see cards.THROTTLE_BITS) -> share of the readings in which it held the clocks down; empty = none did."""
    throttled_share: float | None = None
    """Share of the readings with any of these reasons."""
    held_share: float | None = None
    """Share of the readings in which application or locked clocks held the clocks down."""
    power_capped_share: float | None = None
    """Share of the readings at the power limit."""
    sm_clock_mhz: float | None = None
    """Mean SM clock."""
    sm_clock_throttled_mhz: float | None = None
    """Mean SM clock over the readings that were throttled."""
    sm_clock_free_mhz: float | None = None
    """Mean SM clock over the readings that were not throttled."""
    sm_clock_max_mhz: float | None = None
    power_limit_w: float | None = None
    power_default_w: float | None = None
    """Factory default of the power limit."""
    temperature_c: float | None = None
    """Highest reading."""
    energy_per_sample_j: float | None = None
    """Joules of the whole card per training sample, by its energy counter; other processes on it are included."""
    other_processes: float | None = None
    """Largest number of processes on the card that are neither this process nor its children."""
    other_processes_bytes: float | None = None
    other_processes_util_pct: float | None = None
    """Mean part of the time, in per cent, in which kernels of other processes ran."""
    pcie_gen: float | None = None
    """Highest PCIe generation read: an idle link falls back to a lower one."""
    pcie_width: float | None = None
    pcie_gen_max: float | None = None
    """Highest PCIe generation that card and slot both support."""
    pcie_width_max: float | None = None
    c2c_bytes_per_s: float | None = None
    """Bytes/s one way over NVLink-C2C, if GPU and CPU share a module: copies then take it instead of the PCIe link."""
    cards_seen: int | None = None
    """GPUs of this process that NVML reported; None = NVML was not available."""
    driver_cuda: tuple[int, int] | None = None
    """Highest CUDA version that the driver supports."""
    architecture_support: int | None = None
    """cards.NATIVE, TRANSLATED or ABSENT: torch's machine code for the card; None = no device in use."""

    @property
    def link_bytes_per_s(self) -> float | None:
        """Nominal bytes/s one way of the link that copies to the GPU take; None if NVML did not report it."""
        if self.c2c_bytes_per_s is not None:
            return self.c2c_bytes_per_s
        gb_per_s = link_gb_per_s(self.pcie_gen, self.pcie_width) if self.pcie_gen and self.pcie_width else None
        return None if gb_per_s is None else 1e9 * gb_per_s

    @property
    def link_name(self) -> str:
        """Name of the link that copies to the GPU take: `NVLink-C2C`, or `PCIe 4 with 16 lanes`."""
        if self.c2c_bytes_per_s is not None:
            return "NVLink-C2C"
        return f"PCIe {round(self.pcie_gen or 0)} with {formatting.count(round(self.pcie_width or 0), 'lane')}"


def hardware(recording: Recording, steps: Steps, begin_s: float) -> dict[str, Any]:
    """Computes the fields of HardwareVitals; a field missing from the result was not measured.

    Args:
        recording: recording of a run or a trial.
        steps: the rows judged, warm-up included.
        begin_s: end of the warm-up, in seconds of the run.
    """
    reported = (s.metric.device for s in recording.series if s.metric.name == "gpu_memory_total_bytes")
    cards = {device for device in reported if device is not None}
    device = recording.setup.gpu_index
    card = _Card(recording, device if device is not None else min(cards, default=0), steps, begin_s)
    served, architecture = card.last("driver_cuda"), card.last("architecture_support")
    found: dict[str, Any] = {
        "cards_seen": len(cards) or None,
        "driver_cuda": served_cuda(served) if served else None,
        "architecture_support": None if architecture is None else int(architecture),
    }
    if device is None:
        return found
    others = card.values("other_processes")
    return found | {
        **_clocks(card),
        "power_limit_w": card.last("gpu_power_limit_w"),
        "power_default_w": card.last("gpu_power_default_w"),
        "temperature_c": card.most("gpu_temperature_c"),
        "energy_per_sample_j": _energy(card, steps),
        "other_processes": float(others.max()) if len(others) else None,
        "other_processes_bytes": card.most("other_processes_bytes"),
        "other_processes_util_pct": card.mean("other_processes_util_pct", loaded=False),
        "pcie_gen": card.most("pcie_gen"),
        "pcie_width": card.most("pcie_width"),
        "pcie_gen_max": card.last("pcie_gen_max"),
        "pcie_width_max": card.last("pcie_width_max"),
        "c2c_bytes_per_s": card.last("c2c_bytes_per_s"),
    }


class _Card:
    """The readings of one card while the loop ran."""

    def __init__(self, recording: Recording, device: int, steps: Steps, begin_s: float) -> None:
        self._recording, self._device, self._begin_s = recording, device, begin_s
        self._end_s = steps.end_s
        busy, bits = (recording.one_series(name, device) for name in ("gpu_util_pct", "clock_limit_bits"))
        # Without NVML's utilisation (on a MIG slice) no reading is known to be under load.
        self._loaded_at = busy.times_s[busy.values >= LOADED_PCT] if busy is not None else np.empty(0)
        if bits is not None:
            self._loaded_at = np.setdiff1d(self._loaded_at, bits.times_s[~_working(bits.values)])

    def timed(self, name: str, loaded: bool = True) -> tuple[Column, Column]:
        """Returns times (s) and values between warm-up and the loop's end; with `loaded`, only readings under load."""
        series = self._recording.one_series(name, self._device)
        if series is None:
            return np.empty(0), np.empty(0)
        wanted = (series.times_s >= self._begin_s) & (series.times_s <= self._end_s)
        if loaded:  # one probe reads all of a card at one time
            wanted &= np.isin(series.times_s, self._loaded_at)
        return series.times_s[wanted], series.values[wanted]

    def values(self, name: str) -> Column:
        """Returns all readings of the run."""
        series = self._recording.one_series(name, self._device)
        return series.values if series is not None else np.empty(0)

    def last(self, name: str) -> float | None:
        """Returns the last reading of the run, for a metric that hardly changes."""
        values = self.values(name)
        return float(values[-1]) if len(values) else None

    def most(self, name: str) -> float | None:
        """Returns the highest reading of the run."""
        values = self.values(name)
        return float(values.max()) if len(values) else None

    def mean(self, name: str, loaded: bool = True) -> float | None:
        """Returns the mean reading between warm-up and the loop's end; with `loaded`, of readings under load."""
        _, values = self.timed(name, loaded)
        return float(values.mean()) if len(values) else None


def _working(bits: Column) -> NDArray[np.bool_]:
    """Selects the readings whose clock-limit reasons are known and do not include idling."""
    whole = bits == np.floor(bits)  # a very long run averages neighbouring readings: a fraction is no bit mask
    resting = np.where(whole, bits, 0.0).astype(np.int64) & IDLE_BIT
    return np.asarray(whole & (resting == 0), dtype=np.bool_)


def _clocks(card: _Card) -> dict[str, Any]:
    """Computes the fields on clocks and their limits from the readings under load."""
    at, clocks = card.timed("sm_clock_mhz")
    bits_at, bits = card.timed("clock_limit_bits")
    found: dict[str, Any] = {
        "sm_clock_mhz": float(clocks.mean()) if len(clocks) else None,
        "sm_clock_max_mhz": card.last("sm_clock_max_mhz"),
    }
    flags = bits.astype(np.int64)
    if len(flags) < FEWEST_READINGS:
        return found
    limited = np.zeros(len(flags), dtype=bool)
    shares = {}
    for bit, words in THROTTLE_BITS.items():
        set_here = (flags & bit) != 0
        limited |= set_here
        if set_here.any():
            shares[words] = float(set_here.mean())
    throttled, free = np.isin(at, bits_at[limited]), np.isin(at, bits_at[~limited])
    return found | {
        "throttle_shares": dict(sorted(shares.items(), key=lambda item: -item[1])),
        "throttled_share": float(limited.mean()),
        "held_share": float(((flags & HELD_BIT) != 0).mean()),
        "power_capped_share": float(((flags & POWER_CAP_BIT) != 0).mean()),
        "sm_clock_throttled_mhz": float(clocks[throttled].mean()) if throttled.any() else None,
        "sm_clock_free_mhz": float(clocks[free].mean()) if free.any() else None,
    }


def _energy(card: _Card, steps: Steps) -> float | None:
    """Joules per sample: the energy between the first and the last reading over the samples trained between them."""
    times, joules = card.timed("gpu_energy_j", loaded=False)
    if len(joules) < FEWEST_READINGS or not len(steps) or not np.isfinite(steps.samples).all():
        return None
    done = np.concatenate([[0.0], np.cumsum(steps.count)])
    samples = np.concatenate([[0.0], np.cumsum(steps.samples)])
    trained = np.diff(np.interp(steps_done(steps, times[[0, -1]]), done, samples))[0]
    spent = float(joules[-1] - joules[0])
    return spent / float(trained) if trained > 0 and spent > 0 else None
