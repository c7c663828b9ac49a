"""Runs and feeds for the tests of the panel: a starved loop on a GPU or a CPU, and a feed that can be moved on."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.recording import Cursor, DeviceSetup, Fetch, LoaderSetup, Metric, News, Recording, Series, Setup, Steps
from gpu_doctor.report.panel import PanelInput

CPU = Metric("cpu_util_pct", "%", "CPU, all usable cores", "utilization")
PROCESS = Metric("process_rss_bytes", "bytes", "process", "memory")
WORKERS = Metric("workers_rss_bytes", "bytes", "workers (shared pages counted in each)", "memory")
GPU = Metric("gpu_util_pct", "%", "GPU (NVML utilization)", "utilization", 0)


def starved(gpu: bool = False, steps: int = 60, wait_s: float = 0.030, workers: int = 0, **fields: Any) -> Recording:
    """A loop whose steps last `wait_s` of data wait and 10 ms of the rest."""
    rest = {"forward_s": 0.003, "backward_s": 0.005, "optimizer_s": 0.001, "transfer_s": 0.0, "evaluation_s": 0.0}
    wall = wait_s + 0.010
    columns = {name: np.full(steps, value) for name, value in rest.items()}
    if gpu:
        columns |= {"gpu_s": np.full(steps, 0.009), "gpu_gap_s": np.full(steps, 0.02), "device_steps": np.ones(steps)}
    times = np.arange(0.5, steps * wall, 0.5)
    series = [Series(CPU, times, np.full(len(times), 40.0)), Series(PROCESS, times, np.full(len(times), 2.0 * 2**30))]
    series += [Series(WORKERS, times, np.zeros(len(times)))]
    series += [Series(GPU, times, np.full(len(times), 24.0))] if gpu else []
    loader = LoaderSetup(key="rows", num_workers=workers, batch_size=128, dataset="Rows", dataset_len=7680, batches=60)
    return Recording(
        steps=Steps.of(
            wall_s=np.full(steps, wall),
            data_wait_s=np.full(steps, wait_s),
            samples=np.full(steps, 128.0),
            batches=np.ones(steps),
            edge_s=np.zeros(steps),
            cpu_s=np.full(steps, 0.012),
            **columns,
        ),
        setup=Setup(
            loaders=(loader,),
            device="cuda:0" if gpu else "cpu",
            devices=(DeviceSetup(0, "NVIDIA H200", capability=(9, 0)),) if gpu else (),
            dtype="float32",
            usable_cores=4.0,
            models=("Linear",),
            optimizers=("Adam",),
            torch_threads=2,
            torch_version="2.13.0+cpu",
        ),
        series=tuple(series),
        fetches=(Fetch("rows", workers, steps, steps * wait_s, steps * 0.003, 0.06, 1e6, np.full(steps, wait_s)),),
        duration_s=steps * wall,
        **fields,
    )


def shown(recording: Recording, **fields: Any) -> PanelInput:
    """The panel after a run."""
    seen: dict[str, Any] = {
        "status": "idle",
        "setup": recording.setup,
        "diagnosis": diagnose(recording),
        "recordings": (recording,),
        "elapsed_s": recording.duration_s,
        "step_count": len(recording.steps),
        "samples_per_s": 3200.0,
    }
    return PanelInput(**{**seen, **fields})


class Script:
    """A feed that hands out prepared news, one after the other, then nothing new."""

    def __init__(self, *news: News) -> None:
        self._news = list(news)

    def news(self, cursor: Cursor) -> News:
        if self._news:
            return self._news.pop(0)
        empty = starved(steps=1).steps.rows(0, 0)
        return News(cursor, empty, (), reset=False, elapsed_s=1.0, step_count=0, done=False)


def news(steps: Steps, rows: int, reset: bool = False, done: bool = False, generation: int = 0) -> News:
    """News of steps that end at row `rows`."""
    return News(Cursor(generation, rows), steps, (), reset, 1.0, rows, done)


def replaced(steps: Steps, **columns: Any) -> Steps:
    return dataclasses.replace(steps, **columns)
