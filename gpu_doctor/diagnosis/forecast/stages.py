"""Seconds of a step's stages, from its vitals: fetching, the loop's own work, the device, the CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpu_doctor.diagnosis.vitals.fetching import contending_runs, served_s
from gpu_doctor.diagnosis.vitals.fields import Vitals

OTHERS: Final = 0.25
"""Cores that other programs must use to be counted: an idle desktop and our own poller use less."""
HANDOVER_MOST_S: Final = 3e-3
"""Most seconds that the loop takes to receive a batch from a worker, if no run with workers measured it; it only widens
a band."""
HANDOVER_MOST_S_PER_BYTE: Final = 1e-9
"""Seconds for each byte of the batch that are added to HANDOVER_MOST_S."""


@dataclass(frozen=True)
class Stages:
    """Seconds of a step's stages. A pair is (at best, at worst) for a value that was not measured."""

    step: float
    workers: int
    """Worker processes of each loader, in this run."""
    loaders: float
    """Number of loaders that fetch in parallel, each with its own workers."""
    batches: float
    """Batches of a step."""
    host: tuple[float, float]
    """Seconds of the loop without its wait for data; at best also without its waits for the GPU."""
    host_cpu: float
    device: float
    """Seconds in which a GPU is busy; 0 on a CPU."""
    fetch: float
    """Wall seconds of a step's fetches, one after the other, without time queueing for a core."""
    fetch_cpu: float
    alone: tuple[float, float]
    """Seconds of `fetch` that more workers do not shorten: all if workers hold each other up; at worst those in which
    storage or memory serves it."""
    handover: tuple[float, float]
    """Seconds of `next()` for batches that are ready."""
    edge: float
    """Seconds per step that epoch starts cost in this run, with workers."""
    cores: tuple[float, float]
    """Usable cores; at worst without the cores that other programs use."""


def stages(v: Vitals) -> Stages | None:
    """Returns the stages of the recorded loop; None if the fetch or the wait was not measured."""
    if v.step_wall_s is None or v.fetch_wall_s is None or v.fetch_cpu_s is None or v.workers is None:
        return None
    if v.data_wait_share is None or v.consumer_s is None or (v.on_gpu and v.gpu_busy_share is None):
        return None
    batches, host_step = v.batches_per_step or 1.0, v.host_step_s or v.step_wall_s
    wait, fetch, host = v.data_wait_share * host_step, v.fetch_wall_s * batches, v.consumer_s
    queued, fetch_cpu, edge = (v.fetch_queued_s or 0.0) * batches, v.fetch_cpu_s * batches, edge_s(v)
    if not v.workers:  # fetches were timed in the warm-up too: they take at most the wait, whose rest is the loop's
        part = min(wait / fetch, 1.0) if fetch > 0 else 1.0
        fetch, queued, fetch_cpu, edge = fetch * part, queued * part, fetch_cpu * part, 0.0
        host += wait - fetch
    blocked = v.together("sync", "transfer") * host_step if v.on_gpu else 0.0
    used = host if v.consumer_cpu_s is None else v.consumer_cpu_s
    cores, others = max(v.usable_cores, 1.0), _others(v, (fetch_cpu + used) / v.step_wall_s)
    # Not all of it is work: while the loop fetches, threads of a pool spin, and CUDA's driver while it waits for a GPU.
    threads = 1 if v.on_gpu else v.setup.torch_threads or v.usable_cores
    host_cpu = max(min(used, host * threads) - blocked, 0.0)
    fetch = max(fetch - queued, fetch_cpu)  # what several threads of the loop compute, a worker computes with one
    alone = fetch if contending_runs(v) is not None else 0.0
    return Stages(
        step=v.step_wall_s,
        workers=v.workers,
        loaders=v.loaders_at_once or 1.0,
        batches=batches,
        host=(max(host - blocked, 0.0), host),
        host_cpu=host_cpu,
        device=(v.gpu_busy_share or 0.0) * v.step_wall_s if v.on_gpu else 0.0,
        fetch=fetch,
        fetch_cpu=fetch_cpu,
        alone=(alone, max(alone, min(served_s(v) * batches, fetch))),
        handover=_handover_s(v, batches, max(wait - edge, 0.0)),
        edge=edge,
        cores=(cores, max(cores - others, 1.0)),
    )


def edge_s(v: Vitals) -> float:
    """Seconds per step that the loop loses at epoch starts; on a GPU at most the device's wait for data."""
    edge = (v.edge_share or 0.0) * (v.host_step_s or 0.0)
    return min(edge, (v.exposed_wait_share or 0.0) * (v.step_wall_s or 0.0)) if v.on_gpu else edge


def _handover_s(v: Vitals, batches: float, wait: float) -> tuple[float, float]:
    """Seconds per step of taking batches over from workers: measured, else a bound (at most `wait`, with workers)."""
    if v.handover_s is not None:
        return v.handover_s, v.handover_s
    most = HANDOVER_MOST_S * batches + HANDOVER_MOST_S_PER_BYTE * (v.batch_bytes or 0.0) * batches
    return 0.0, min(most, wait) if v.workers else most


def _others(v: Vitals, own: float) -> float:
    """Cores that other programs use, beyond the `own` ones of the loop and its workers."""
    others = v.usable_cores * (v.cpu_util_pct or 0.0) / 100.0 - own
    return others if others >= OTHERS else 0.0


def fetched_s(v: Vitals) -> float:
    """Seconds in which the workers fetch the batches of one step; 0 if the loop fetches them itself."""
    return v.fetches_s / (v.workers * (v.loaders_at_once or 1.0)) if v.workers else 0.0
