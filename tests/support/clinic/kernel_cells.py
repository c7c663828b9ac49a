"""Patients on a GPU that runs its kernels worse than it could, or waits for them, by what was found around them.

GPU: not yet run on one. How a loop spends its step is written down, and so is the make of its model and inputs; what a
cure gains only a card can tell, so that the judgement alone is under test.
"""

from __future__ import annotations

from typing import Any

from gpu_doctor.recording import DeviceSetup
from gpu_doctor.recording.setup import InputFacts, ModelFacts
from tests.support.clinic.card_cells import BUSY, CLOCKS, read
from tests.support.clinic.cell import Patient, Recorded
from tests.support.recordings import Loop

IMAGES = InputFacts(looked_at=40, shapes=1, shape=(64, 3, 224, 224), dtype="float32", device="cuda:0")
TUNED = {"cudnn_benchmark": True, "deterministic": False}
RESNET: dict[str, Any] = {
    "autocast": "bfloat16",
    "layers": {"Conv2d": 53, "Linear": 1},
    "flags": TUNED,
    "inputs": IMAGES,
    "model": ModelFacts({"cuda:0": 102 << 20}, convolutions=53, channels_last=53),
}
"""A network of convolutions with nothing left to turn."""
GPT: dict[str, Any] = {
    "autocast": "bfloat16",
    "layers": {"Linear": 49, "Embedding": 2},
    "parameters": 124_000_000,
    "inputs": InputFacts(looked_at=40, shapes=1, shape=(16, 1024), dtype="int64", device="cuda:0"),
    "model": ModelFacts({"cuda:0": 496 << 20}),
}
STARVED = BUSY.but(gpu_work=6.0, gpu_gap=4.0, caught_up=1.0)
"""The GPU is through with each step's kernels before the host has launched the next one's."""
SMALL: dict[str, Any] = {
    "inputs": InputFacts(looked_at=40, shapes=1, shape=(32, 128), dtype="float32", device="cuda:0"),
    "model": ModelFacts({"cuda:0": 4 << 20}),
}
TINY: dict[str, Any] = {
    "parameters": 1000,
    "inputs": InputFacts(looked_at=40, shapes=1, shape=(4096, 16), dtype="float32", device="cuda:0"),
}
FORGOTTEN: dict[str, Any] = {
    "devices": (DeviceSetup(0, "NVIDIA H200", "GPU-1", int(80e9), (9, 0)),),
    "model": ModelFacts({"cpu": 40 << 20}),
}

CELLS: tuple[Patient, ...] = (
    Recorded(
        "card-with-a-tuned-network",
        "compute",
        healthy=True,
        never=("cudnn-not-tuned", "channels-first-convolutions", "full-precision"),
        play=read(BUSY.but(setup=RESNET), **CLOCKS),
    ),
    Recorded(
        "card-whose-cudnn-guesses",
        "compute",
        ("cudnn-not-tuned",),
        play=read(BUSY.but(setup={**RESNET, "flags": {**TUNED, "cudnn_benchmark": False}}), **CLOCKS),
    ),
    Recorded(
        "card-with-images-channels-first",
        "compute",
        ("channels-first-convolutions",),
        play=read(BUSY.but(setup={**RESNET, "model": ModelFacts({"cuda:0": 102 << 20}, convolutions=53)}), **CLOCKS),
    ),
    Recorded(
        "card-with-a-model-that-is-not-compiled",
        "compute",
        ("compile",),
        play=read(BUSY.but(setup=GPT), **CLOCKS),
    ),
    Recorded(
        "card-that-emulates-bfloat16",
        "compute",
        ("emulated-half-precision",),
        play=read(BUSY.but(capability=(7, 5), tensor_active=None, setup=GPT), **CLOCKS),
    ),
    Recorded(
        "card-with-a-padded-vocabulary",
        "compute",
        healthy=True,
        never=("emulated-half-precision",),
        play=read(BUSY.but(setup=GPT), **CLOCKS),
    ),
    Recorded(
        "card-that-waits-for-launches",
        "host",
        ("not-compiled",),
        play=read(STARVED.but(gpu_util=40.0, setup=SMALL), **CLOCKS),
    ),
    Recorded(
        "card-with-a-toy-on-it",
        "host",
        ("model-too-small",),
        play=read(STARVED.but(batch=4096, gpu_util=20.0, setup=TINY), **CLOCKS),
    ),
    Recorded(
        "card-that-was-forgotten",
        "compute",
        ("model-on-cpu",),
        play=Loop(forward=10.0, backward=20.0, optimizer=2.0, setup=FORGOTTEN).recording,
    ),
)
