"""Patients that compute a part of the forward twice to save memory, which they have or have not.

The recordings are of a GPU: not yet run on one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gpu_doctor.recording import Recording
from gpu_doctor.recording.setup import ModelFacts, Recomputation
from tests.support.clinic.card_cells import BUSY, read
from tests.support.clinic.cell import Cell, Patient, Recorded
from tests.support.recordings import Loop

MODEL = """
        import torch
        import torch.nn.functional as F
        from torch import nn
        from torch.utils.checkpoint import checkpoint

        torch.set_num_threads(1)

        class Encoder(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = nn.Embedding(500, 128)
                self.layers = nn.ModuleList(
                    nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True) for _ in range(3)
                )
                self.head = nn.Linear(128, 10)

            def forward(self, ids):
                x = self.embed(ids)
                for layer in self.layers:
                    x = %s
                return self.head(x.mean(1))

        texts = [(torch.randint(0, 500, (8, 64)), torch.randint(0, 10, (8,))) for _ in range(40)]
"""
AGAIN = "checkpoint(layer, x, use_reentrant=%s)"
TRAINING = """
        model = Encoder()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        for ids, labels in texts:
            loss = F.cross_entropy(model(ids), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
CURED = (MODEL % "layer(x)").split("texts = ")[0] + TRAINING


def on_card(loop: Loop, forward_ms: float, backward_ms: float) -> Callable[[], Recording]:
    """The recording of a loop whose forward and backward the device's clock told."""

    def play() -> Recording:
        recording = read(loop)()
        n = len(recording.steps)
        told = {"gpu_forward_s": np.full(n, forward_ms * 1e-3), "gpu_backward_s": np.full(n, backward_ms * 1e-3)}
        return replace(recording, steps=replace(recording.steps, **told))

    return play


def recomputing(room: float) -> Loop:
    """A language model on a card of which a part is free at the peak; all activations take 20 GB at most."""
    return BUSY.but(
        peak_share=1.0 - room,
        setup={
            "autocast": "bfloat16",
            "model": ModelFacts({"cuda:0": 700 << 20}),
            "recomputation": Recomputation(100 * 24, 0.35, 9e9),
            "graph_result_bytes": 1e9,
        },
    )


CELLS: tuple[Patient, ...] = (
    Cell(
        name="encoder-checkpointed-needlessly",
        klass="compute",
        top=("needless-checkpointing",),
        before=MODEL % (AGAIN % "False"),
        sick=TRAINING,
        cured=CURED,
    ),
    Cell(
        name="encoder-checkpointed-reentrantly",
        klass="compute",
        top=("needless-checkpointing",),
        before=MODEL % (AGAIN % "True"),
        sick=TRAINING,
        cured=CURED,
    ),
    Cell(
        name="encoder-that-keeps-its-activations",
        klass="compute",
        healthy=True,
        never=("needless-checkpointing", "attention"),
        before=MODEL % "layer(x)",
        sick=TRAINING,
    ),
    Recorded(
        "card-with-room-for-activations",
        "compute",
        ("needless-checkpointing",),
        play=on_card(recomputing(room=0.5), 2.5, 7.0),
    ),
    Recorded(
        "card-that-activations-would-fill",
        "compute",
        healthy=True,
        never=("needless-checkpointing",),
        play=on_card(recomputing(room=0.2), 2.5, 7.0),
    ),
)
