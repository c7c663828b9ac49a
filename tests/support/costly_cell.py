"""A recording that is dear to judge: many steps, many lines, a long cell."""

from __future__ import annotations

import dataclasses

import numpy as np

from gpu_doctor.recording import Metric, Recording, Series
from tests.support.recordings import Loop, line

SLEEPING = Loop(wait=40.0, fetch_cpu=1.0, consumer_cpu=10.0, cores=2.0)
CELL = """\
import random, torch
from torch import nn

def batches(texts, size):
    for at in range(0, len(texts), size):
        rows = [encode(one) for one in texts[at : at + size]]
        yield torch.tensor(rows), torch.tensor([len(one) for one in rows])

def train(model, optimizer, texts, history):
    for x, y in batches(texts, 32):
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss)
        print(f"{loss:.3f}")
""" + "".join(
    f"def step_{i}(values):\n    kept = []\n    for one in values:\n        kept.append(one * {i})\n    return kept\n\n"
    for i in range(14)
)
"""A cell of a hundred lines that makes its own batches and keeps its losses."""


def costly(cell: str) -> Recording:
    """Ten thousand steps of it, each of its lines seen, in a process whose memory grows."""
    lines = tuple(
        line(text.strip(), 0.3 if "encode" in text else 0.004, "forward" if "model(x)" in text else "other")
        for text in cell.splitlines()
        if text.strip()
    )
    recording = SLEEPING.but(steps=10_000, other=30.0, has_loader=False, source=cell, lines=lines).recording()
    times = np.linspace(0.0, float(recording.steps.start_s[-1]), 200)
    rss = Series(Metric("process_rss_bytes", "bytes", "", "memory"), times, 1e9 + 1e7 * np.arange(200.0))
    return dataclasses.replace(recording, series=(*recording.series, rss))
