"""Synthetic recordings with realistic figures, and one with hostile text, for the tests of effect and report."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_doctor.recording import (
    DeviceSetup,
    Fetch,
    LineCost,
    LoaderSetup,
    Losses,
    Metric,
    Recording,
    Series,
    Setup,
    Steps,
)

SOURCE = """\
loader = DataLoader(dataset, batch_size=128, shuffle=True)
for step, (x, y) in enumerate(loader):
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    running += loss.item()
    if step % 100 == 0:
        print(step, running)
"""
HOSTILE = "<script>alert('x')</script><img src=x onerror=alert(1)>&amp;\"'\x1b[31m\x00\u202e\ud800"


def steps(n: int = 400, wait_s: float = 0.0293, seed: int = 1, batch: int = 128, **columns: Any) -> Steps:
    """A loop of about 12 ms of work and `wait_s` of waiting per step; the first step is slow, epochs of 150 steps."""
    rng = np.random.default_rng(seed)
    parts = {
        name: mean * rng.lognormal(0, 0.08, n)
        for name, mean in {
            "data_wait_s": wait_s,
            "transfer_s": 0.0006,
            "forward_s": 0.0031,
            "backward_s": 0.0048,
            "optimizer_s": 0.0022,
        }.items()
    }
    wall = sum(parts.values()) + 0.0011 * rng.lognormal(0, 0.3, n)
    wall[:1] += 0.9
    parts["data_wait_s"][:1] += 0.9
    return Steps.of(
        **{
            "wall_s": wall,
            "samples": np.full(n, float(batch)),
            "batches": np.ones(n),
            "evaluation_s": np.zeros(n),
            "loss_s": np.full(n, 0.0003),
            "edge_s": np.zeros(n),
            "transfers": np.full(n, 2.0),
            "epoch": np.arange(n) // 150,
            **parts,
            **columns,
        }
    )


def losses(rows: Steps, factor: float = 1.0) -> Losses:
    """A falling loss."""
    n = len(rows)
    seen = np.concatenate([[0.0], np.cumsum(rows.samples)[:-1]])
    return Losses(
        step=np.arange(n, dtype=np.float64), samples=seen, value=factor * (2.0 * np.exp(-seen / 60_000) + 0.301)
    )


def recording(
    *, gpu: bool = False, n: int = 400, wait_s: float = 0.0293, workers: int = 0, seed: int = 1, **fields: Any
) -> Recording:
    """A run as a probe-rich machine leaves it behind."""
    rows = steps(n, wait_s, seed)
    long_s = float(rows.wall_s.sum())
    at = np.arange(0.0, long_s, 0.5)
    rng = np.random.default_rng(seed)

    def series(name: str, unit: str, label: str, group: str, mean: float, spread: float) -> Series:
        device = 0 if name.startswith(("gpu", "torch", "sm")) else None
        return Series(Metric(name, unit, label, group, device), at, mean + spread * rng.standard_normal(len(at)))

    read = [
        series("cpu_util_pct", "%", "CPU, all usable cores", "utilization", 62.0, 6.0),
        series("process_rss_bytes", "bytes", "process", "memory", 1.4 * 2**30, 0.02 * 2**30),
    ]
    if gpu:
        read = [
            series("gpu_util_pct", "%", "GPU (NVML utilization)", "utilization", 24.0, 5.0),
            series("sm_active_pct", "%", "SMs active", "utilization", 15.0, 3.0),
            *read,
            series("torch_allocated_bytes", "bytes", "allocated by torch", "memory", 2.8 * 2**30, 0.1 * 2**30),
            series("torch_reserved_bytes", "bytes", "reserved by torch", "memory", 3.1 * 2**30, 0.0),
        ]
    loader = LoaderSetup("A|50000|128|random|0", "training", workers, 128, dataset="A", dataset_len=50000)
    devices = (DeviceSetup(0, "NVIDIA H200", "GPU-1", 141 * 2**30, (9, 0)),) if gpu else ()
    defaults: dict[str, Any] = {
        "setup": Setup(
            loaders=(loader,),
            device="cuda:0" if gpu else "cpu",
            devices=devices,
            dtype="float32",
            usable_cores=16.0 if gpu else 2.0,
            torch_version="2.13.0",
        ),
        "settings": {"num_workers": workers} if workers else {},
        "series": tuple(read),
        "fetches": (Fetch(loader.key, workers, n, 0.029 * n, 0.004 * n, 0.001 * n, 1e6, np.full(20, 0.029)),),
        "lines": (
            LineCost("<cell>", 2, "<module>", "for step, (x, y) in enumerate(loader):", "data_wait", 0.12),
            LineCost("/home/me/data.py", 41, "__getitem__", "image = decode(path)", "data_wait", 0.59),
            LineCost("<cell>", 5, "<module>", "loss = criterion(model(x), y)", "forward", 0.08),
            LineCost("<cell>", 6, "<module>", "loss.backward()", "backward", 0.12),
            LineCost("<cell>", 7, "<module>", "optimizer.step()", "optimizer", 0.05),
        ),
        "losses": losses(rows),
        "source": SOURCE,
        "name": "run 1",
        "duration_s": long_s + 0.4,
        "overhead_s": 0.004 * long_s,
        "peak_bytes": 3.1 * 2**30,
    }
    return Recording(steps=rows, **{**defaults, **fields})
