"""Vitals of memory: how full the device's and the host's memory is, and how fast it grows.

GPU: not yet run on one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from gpu_doctor.diagnosis.vitals.trend import Growth, rising, steps_done
from gpu_doctor.recording import Column, Recording, Series, Steps
from gpu_doctor.recording.setup import KeptBatches
from gpu_doctor.recording.steps import ratio

FEWEST_RISING: Final = 4
"""Fewest readings, each higher than the one before, that show a rise whose cause is known (kept graphs)."""
EXPLAINED: Final = 0.5
"""Part of the kept batches' bytes that a rise must reach to be explained by them: the process frees other memory
meanwhile."""


@dataclass(frozen=True)
class MemoryVitals:
    """Fields of Vitals on memory."""

    reserved_peak_bytes: float | None = None
    """Largest reading of the memory that torch's allocator holds on the GPU that the loop trains on."""
    reserved_first_bytes: float | None = None
    """First reading of it, which may include memory of an earlier cell."""
    inactive_split_bytes: float | None = None
    """Largest reading of free pieces inside blocks in use, which can neither be given back nor joined."""
    alloc_retries: float | None = None
    """Allocations in this run that succeeded only after the allocator had released its cache."""
    device_used_bytes: float | None = None
    """Largest reading of the memory in use on that GPU by all processes and CUDA itself (NVML)."""
    device_growth_bytes_per_step: float | None = None
    """Rise of torch's allocated memory; 0 = does not rise steadily, None = too few readings to tell."""
    device_steps_to_full: float | None = None
    """Steps after the last reading until the GPU's memory is full at that rate; None if it does not rise."""
    host_growth_bytes_per_step: float | None = None
    """Rise of the process' memory, file pages left out; 0 and None as for the device."""
    host_steps_to_full: float | None = None
    """Steps after the last reading until the host's available memory is used up at that rate."""
    device_rise_bytes: float | None = None
    """Rise over the readings that device_growth_bytes_per_step was computed from."""
    host_rise_bytes: float | None = None
    """Rise over the readings that host_growth_bytes_per_step was computed from."""
    graphs_kept: bool | None = None
    """True if the graph of every followed step outlived the step; None = none was followed."""
    batches_kept: bool | None = None
    """True if every followed batch outlived many later ones; None = none was followed."""
    growth_past_first_epoch: bool | None = None
    """True if the rates come from readings after the first epoch, when caches of data are full."""
    host_memory_available_bytes: float | None = None
    """Lowest reading of the host's available memory."""
    host_memory_total_bytes: float | None = None
    """Memory of the host, within the container's limit."""
    process_rss_bytes: float | None = None
    """Largest reading of the training process."""
    workers_rss_bytes: float | None = None
    """Largest reading of all child processes together; pages that they share are counted in each."""
    process_swapped_bytes: float | None = None
    """Largest reading of the training process' memory that is swapped out."""
    swap_in_bytes_per_s: float | None = None
    """Mean rate of swapping in after warm-up, of the whole machine."""

    @property
    def outside_torch_bytes(self) -> float:
        """Bytes of the GPU's memory that CUDA and other processes hold outside torch's allocator; 0 if not known."""
        if self.device_used_bytes is None or self.reserved_peak_bytes is None:
            return 0.0
        return max(self.device_used_bytes - self.reserved_peak_bytes, 0.0)


def memory(recording: Recording, steps: Steps, begin_s: float) -> dict[str, Any]:
    """Computes the fields of MemoryVitals; a field missing from the result was not measured.

    Args:
        recording: recording of a run or a trial.
        steps: the rows judged, warm-up included.
        begin_s: end of the warm-up, in seconds of the run.
    """
    swap = recording.one_series("swap_in_bytes_per_s")
    swapped_in = swap.values[swap.times_s >= begin_s] if swap is not None else np.empty(0)
    found: dict[str, Any] = {
        "host_memory_available_bytes": _least(recording.one_series("host_memory_available_bytes")),
        "host_memory_total_bytes": _most(recording.one_series("host_memory_total_bytes")),
        "process_rss_bytes": _most(recording.one_series("process_rss_bytes")),
        "workers_rss_bytes": _most(recording.one_series("workers_rss_bytes")),
        "process_swapped_bytes": _most(recording.one_series("process_swapped_bytes")),
        "swap_in_bytes_per_s": float(swapped_in.mean()) if len(swapped_in) else None,
    }
    graphs = recording.setup.kept_graphs
    found["graphs_kept"] = None if graphs is None else graphs.all_steps
    batches = recording.setup.kept_batches
    found["batches_kept"] = None if batches is None else batches.every
    after_s = _second_epoch_s(steps)
    past = after_s is not None and _readings_after(recording, max(after_s, begin_s))
    since_s = max(after_s or 0.0, begin_s) if past else begin_s
    found["growth_past_first_epoch"] = bool(past)
    host = recording.one_series("process_held_bytes") or recording.one_series("process_rss_bytes")
    room = found["host_memory_available_bytes"]
    found |= (
        _growing("host", host, host, steps, since_s, room)
        or _by_batches(batches, host, steps, room)
        or (_growth_by_kept_graphs(host, steps, begin_s, room) if found["graphs_kept"] else {})
    )
    device = recording.setup.gpu_index
    if device is None:
        return found
    reserved, allocated = (recording.one_series(f"torch_{name}_bytes", device) for name in ("reserved", "allocated"))
    used = _most(recording.one_series("gpu_memory_used_bytes", device))
    total = None if recording.setup.card is None else recording.setup.card.memory_bytes
    highest = recording.one_series("torch_peak_bytes", device) or _highest_so_far(allocated)
    top = _most(highest)
    room = None if not total or top is None else max(float(total) - top, 0.0)
    found |= _growing("device", allocated, highest, steps, since_s, room)
    return found | {
        "reserved_peak_bytes": _most(reserved),
        "reserved_first_bytes": float(reserved.values[0]) if reserved is not None and len(reserved.values) else None,
        "inactive_split_bytes": _most(recording.one_series("torch_inactive_split_bytes", device)),
        "alloc_retries": _most(recording.one_series("torch_alloc_retries", device)),
        "device_used_bytes": used,
    }


def _growing(
    where: str, current: Series | None, highest: Series | None, steps: Steps, since_s: float, free_bytes: float | None
) -> dict[str, float | None]:
    """Computes rate, rise and steps until full of growing memory; the rate is 0 if it does not grow steadily.

    Args:
        where: `host` or `device`, the start of the fields' names.
        current: memory held at each reading, in bytes.
        highest: peak at each reading, in bytes; memory grows only if this and `current` rise.
        steps: the rows judged.
        since_s: start of the readings to use, in seconds of the run.
        free_bytes: bytes that are still free; None = not known.
    """
    if current is None or highest is None:
        return {}
    times, marks = _between(highest, since_s, steps)
    grown = rising(steps_done(steps, times), marks)
    if grown is None:
        return {}
    # Within a step memory swings by all its activations: the memory held at a reading can only disprove a rise.
    _, now = _between(current, since_s, steps)
    half = len(now) // 2
    if grown is False or half == 0 or now[half:].min() <= now[:half].min():
        return {f"{where}_growth_bytes_per_step": 0.0}
    assert isinstance(grown, Growth)
    return {
        f"{where}_growth_bytes_per_step": grown.bytes_per_step,
        f"{where}_rise_bytes": grown.rise_bytes,
        f"{where}_steps_to_full": None if free_bytes is None else free_bytes / grown.bytes_per_step,
    }


def _by_batches(
    facts: KeptBatches | None, readings: Series | None, steps: Steps, free_bytes: float | None
) -> dict[str, float | None]:
    """Computes the host's growth, for few readings, from the batches that the cell keeps.

    Empty unless every followed batch is kept, and memory rose by at least half of their bytes.
    """
    batches = ratio(steps.batches, steps.count)
    if facts is None or not facts.every or readings is None or not batches:
        return {}
    times, values = _between(readings, 0.0, steps)
    done = steps_done(steps, times)
    rate = batches * facts.batch_bytes
    if len(values) < 2 or not values[-1] - values[0] >= EXPLAINED * rate * (done[-1] - done[0]) > 0:
        return {}
    return _at(rate, float(done[-1] - done[0]), free_bytes)


def _growth_by_kept_graphs(
    readings: Series | None, steps: Steps, begin_s: float, free_bytes: float | None
) -> dict[str, float | None]:
    """Returns the host's growth and the steps until its memory is full; empty if a reading is no higher than the last.

    As few as FEWEST_RISING readings suffice. Only for runs whose autograd graphs outlive their steps (`graphs_kept`);
    other runs need more readings.
    """
    if readings is None:
        return {}
    times, values = _between(readings, begin_s, steps)
    done = steps_done(steps, times)
    if len(values) < FEWEST_RISING or not (np.diff(values) > 0).all() or done[-1] <= done[0]:
        return {}
    passed = float(done[-1] - done[0])
    return _at(float(values[-1] - values[0]) / passed, passed, free_bytes)


def _at(rate: float, steps: float, free_bytes: float | None) -> dict[str, float | None]:
    """Returns the fields on the host's growth for a rate (bytes a step), the steps it was seen in, and free bytes."""
    return {
        "host_growth_bytes_per_step": rate,
        "host_rise_bytes": rate * steps,
        "host_steps_to_full": None if free_bytes is None else free_bytes / rate,
    }


def _between(series: Series, since_s: float, steps: Steps) -> tuple[Column, Column]:
    """Returns times (s) and values of the readings from `since_s` to the end of the last step."""
    inside = (series.times_s >= since_s) & (series.times_s <= steps.end_s)
    return series.times_s[inside], series.values[inside]


def _second_epoch_s(steps: Steps) -> float | None:
    """Returns when the second epoch began, in seconds of the run; None if there is only one."""
    epochs = steps.epoch
    later = np.flatnonzero(epochs > epochs[0]) if len(steps) and np.isfinite(epochs[0]) else np.empty(0)
    return float(steps.start_s[later[0]]) if len(later) else None


def _readings_after(recording: Recording, since_s: float) -> bool:
    """True if there are enough readings after a time (s) for a rate: more than 8."""
    series = recording.one_series("process_rss_bytes") or recording.one_series("torch_allocated_bytes")
    return series is not None and int((series.times_s >= since_s).sum()) > 8


def _highest_so_far(series: Series | None) -> Series | None:
    """Returns the highest reading so far at each reading, for a run whose allocator's peak was not read."""
    return None if series is None else replace(series, values=np.maximum.accumulate(series.values))


def _most(series: Series | None) -> float | None:
    """Returns the highest reading, or None if there is none."""
    return float(series.values.max()) if series is not None and len(series.values) else None


def _least(series: Series | None) -> float | None:
    """Returns the lowest reading, or None if there is none."""
    return float(series.values.min()) if series is not None and len(series.values) else None
