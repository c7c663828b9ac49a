"""Vitals of memory: how full the device and the host are, and whether it grows.

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
"""Readings that are each higher than the one before tell a rise of which the cause was seen."""
EXPLAINED: Final = 0.5
"""Kept batches explain a rise that is no less than half of their bytes: the process gives other memory back."""


@dataclass(frozen=True)
class MemoryVitals:
    """A part of Vitals."""

    reserved_peak_bytes: float | None = None
    """Largest reading of what torch's allocator holds of the GPU that the loop trains on."""
    reserved_first_bytes: float | None = None
    """The first reading of it: what an earlier cell may have left."""
    inactive_split_bytes: float | None = None
    """Largest reading of free pieces inside of blocks in use: they can neither be given back nor joined."""
    alloc_retries: float | None = None
    """Allocations in this run that fitted only after the allocator had given everything cached back."""
    device_used_bytes: float | None = None
    """Largest reading of the memory in use on that GPU, all processes and CUDA's own (NVML)."""
    device_growth_bytes_per_step: float | None = None
    """Rise of torch's allocated memory; 0 = does not rise steadily, None = too few readings to tell."""
    device_steps_to_full: float | None = None
    """Steps after the last reading until the GPU's memory is full at that rate; None where it does not rise."""
    host_growth_bytes_per_step: float | None = None
    """Rise of the process' memory without pages of files; as above."""
    host_steps_to_full: float | None = None
    """Steps after the last reading until the host's available memory is used up at that rate."""
    device_rise_bytes: float | None = None
    """Rise over the readings that the rate is of."""
    host_rise_bytes: float | None = None
    graphs_kept: bool | None = None
    """Every step's graph outlives it, as far as some were followed; None = none was."""
    batches_kept: bool | None = None
    """Every batch outlives many later ones, as far as some were followed; None = too few were."""
    growth_past_first_epoch: bool | None = None
    """The rates are of readings taken after the first epoch, when what is cached on first sight is there."""
    host_memory_available_bytes: float | None = None
    """Least reading."""
    host_memory_total_bytes: float | None = None
    """Within the container's limit."""
    process_rss_bytes: float | None = None
    """Largest reading of the training process."""
    workers_rss_bytes: float | None = None
    """Largest reading of all child processes together; pages that they share are counted in each."""
    process_swapped_bytes: float | None = None
    """Largest reading of what of the training process is swapped out."""
    swap_in_bytes_per_s: float | None = None
    """Mean after warm-up, whole machine."""

    @property
    def beside_bytes(self) -> float:
        """What others and CUDA itself hold of the GPU beside torch's allocator; 0 where that is not known."""
        if self.device_used_bytes is None or self.reserved_peak_bytes is None:
            return 0.0
        return max(self.device_used_bytes - self.reserved_peak_bytes, 0.0)


def memory(recording: Recording, steps: Steps, begin_s: float) -> dict[str, Any]:
    """What is read off a recording for the fields above; a name that is left out is None = not measured.

    Args:
        recording: of a run or a trial.
        steps: the rows judged, warm-up included.
        begin_s: end of the warm-up.
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
    held = recording.one_series("process_held_bytes") or recording.one_series("process_rss_bytes")
    left = found["host_memory_available_bytes"]
    found |= (
        _growing("host", held, held, steps, since_s, left)
        or _by_batches(batches, held, steps, left)
        or (_by_graphs(held, steps, begin_s, left) if found["graphs_kept"] else {})
    )
    device = recording.setup.gpu_index
    if device is None:
        return found
    reserved, allocated = (recording.one_series(f"torch_{name}_bytes", device) for name in ("reserved", "allocated"))
    used = _most(recording.one_series("gpu_memory_used_bytes", device))
    total = None if recording.setup.card is None else recording.setup.card.memory_bytes
    highest = recording.one_series("torch_peak_bytes", device) or _highest_so_far(allocated)
    top = _most(highest)
    left = None if not total or top is None else max(float(total) - top, 0.0)
    found |= _growing("device", allocated, highest, steps, since_s, left)
    return found | {
        "reserved_peak_bytes": _most(reserved),
        "reserved_first_bytes": float(reserved.values[0]) if reserved is not None and len(reserved.values) else None,
        "inactive_split_bytes": _most(recording.one_series("torch_inactive_split_bytes", device)),
        "alloc_retries": _most(recording.one_series("torch_alloc_retries", device)),
        "device_used_bytes": used,
    }


def _growing(
    where: str, held: Series | None, highest: Series | None, steps: Steps, since_s: float, left: float | None
) -> dict[str, float | None]:
    """Rate, rise and steps until full, of a series that must rise both in what it holds and in its highest mark."""
    if held is None or highest is None:
        return {}
    times, marks = _between(highest, since_s, steps)
    grown = rising(steps_done(steps, times), marks)
    if grown is None:
        return {}
    # Within a step memory swings by all its activations: what is held at a reading can only speak against a rise.
    _, now = _between(held, since_s, steps)
    half = len(now) // 2
    if grown is False or half == 0 or now[half:].min() <= now[:half].min():
        return {f"{where}_growth_bytes_per_step": 0.0}
    assert isinstance(grown, Growth)
    return {
        f"{where}_growth_bytes_per_step": grown.bytes_per_step,
        f"{where}_rise_bytes": grown.rise_bytes,
        f"{where}_steps_to_full": None if left is None else left / grown.bytes_per_step,
    }


def _by_batches(
    kept: KeptBatches | None, held: Series | None, steps: Steps, left: float | None
) -> dict[str, float | None]:
    """The same of a run with few readings in which every batch was seen to be kept, and the memory rose by them."""
    batches = ratio(steps.batches, steps.count)
    if kept is None or not kept.every or held is None or not batches:
        return {}
    times, values = _between(held, 0.0, steps)
    done = steps_done(steps, times)
    rate = batches * kept.batch_bytes
    if len(values) < 2 or not values[-1] - values[0] >= EXPLAINED * rate * (done[-1] - done[0]) > 0:
        return {}
    return _at(rate, float(done[-1] - done[0]), left)


def _by_graphs(held: Series | None, steps: Steps, begin_s: float, left: float | None) -> dict[str, float | None]:
    """The same of a run with few readings in which every graph was seen to be kept, and each reading is higher."""
    if held is None:
        return {}
    times, values = _between(held, begin_s, steps)
    done = steps_done(steps, times)
    if len(values) < FEWEST_RISING or not (np.diff(values) > 0).all() or done[-1] <= done[0]:
        return {}
    passed = float(done[-1] - done[0])
    return _at(float(values[-1] - values[0]) / passed, passed, left)


def _at(rate: float, steps: float, left: float | None) -> dict[str, float | None]:
    return {
        "host_growth_bytes_per_step": rate,
        "host_rise_bytes": rate * steps,
        "host_steps_to_full": None if left is None else left / rate,
    }


def _between(series: Series, since_s: float, steps: Steps) -> tuple[Column, Column]:
    """Readings from a time to the end of the last step: what comes after the loop says nothing of its steps."""
    inside = (series.times_s >= since_s) & (series.times_s <= steps.end_s)
    return series.times_s[inside], series.values[inside]


def _second_epoch_s(steps: Steps) -> float | None:
    """When the second epoch of the run began; None where there is but one."""
    epochs = steps.epoch
    later = np.flatnonzero(epochs > epochs[0]) if len(steps) and np.isfinite(epochs[0]) else np.empty(0)
    return float(steps.start_s[later[0]]) if len(later) else None


def _readings_after(recording: Recording, since_s: float) -> bool:
    """Whether enough was read after a time for a rate."""
    series = recording.one_series("process_rss_bytes") or recording.one_series("torch_allocated_bytes")
    return series is not None and int((series.times_s >= since_s).sum()) > 8


def _highest_so_far(series: Series | None) -> Series | None:
    """The most that was read until then, of a run whose own peak is not known."""
    return None if series is None else replace(series, values=np.maximum.accumulate(series.values))


def _most(series: Series | None) -> float | None:
    return float(series.values.max()) if series is not None and len(series.values) else None


def _least(series: Series | None) -> float | None:
    return float(series.values.min()) if series is not None and len(series.values) else None
