"""Loops of the causes in `rules/hardware/`: GPUs that are not used, held back, or shared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpu_doctor.recording import DeviceSetup, Recording
from gpu_doctor.recording.setup import InputFacts, ModelFacts
from tests.support.recordings import READINGS, Loop, on_gpu, read, with_outcome
from tests.support.rule_loops.form import CauseLoops, Sick

# ---- gpu-not-used ----------------------------------------------------------------------------------------------------

CARD = (DeviceSetup(0, "NVIDIA H200", "GPU-1", int(80e9), (9, 0)),)
ON_CPU = ModelFacts(device_bytes={"cpu": 4_000_000})
SPLIT = ModelFacts(device_bytes={"cpu": 4_000_000, "cuda:0": 4_000_000})
FORGOTTEN = Loop(forward=10.0, backward=20.0, optimizer=2.0, wait=8.0, setup={"devices": CARD, "model": ON_CPU})
"""32 of its 40 ms would move to the GPU."""
ROWS = InputFacts(looked_at=20, shapes=1, shape=(32, 4), device="cpu")

MODEL_ON_CPU = CauseLoops(
    "model-on-cpu",
    kind="at-most",
    first=True,
    bottleneck="input",
    well=Loop(forward=10.0, backward=20.0, setup={"model": ON_CPU}),
    sick={
        "before the wait that was measured": Sick(
            FORGOTTEN, 0.8, named=("model-on-cpu", "loader-without-workers"), figures=("H200",), cures=('to("cuda")',)
        ),
        "it says where the inputs are": Sick(
            FORGOTTEN.but(wait=0.0, setup={"devices": CARD, "model": ON_CPU, "inputs": ROWS}),
            1.0,
            figures=("inputs on cpu",),
        ),
    },
    near={
        "no GPU is invented": FORGOTTEN.but(setup={"devices": (), "model": ON_CPU}),
        "a tiny model may stay": FORGOTTEN.but(forward=1.0, backward=2.0, optimizer=0.5),
        "put there on purpose": FORGOTTEN.but(setup={"devices": CARD, "model": SPLIT}),
    },
)

CPU_BUILD: dict[str, Any] = {"torch_version": "2.13.0+cpu", "cuda_version": ""}


def beside_a_card(serves: float = 12040, **setup: Any) -> Recording:
    """Returns the recording of a CPU's loop on a machine whose driver serves this CUDA."""
    return read(Loop(setup=setup), 0, gpu_memory_total_bytes=141e9, driver_cuda=serves)


CPU_ONLY_TORCH = CauseLoops(
    "cpu-only-torch",
    kind="at-most",
    first=True,
    bottleneck="input",
    well=Loop(setup=CPU_BUILD),
    sick={
        "what would move to the GPU": Sick(
            read(Loop(wait=10.0, setup=CPU_BUILD), 0, gpu_memory_total_bytes=141e9, driver_cuda=12040),
            0.5,
            named=("cpu-only-torch", "loader-without-workers"),
            cures=("CUDA 12.4",),
        ),
        "a loop that computes": Sick(beside_a_card(**CPU_BUILD), 1.0),
    },
    near={
        "a build for CUDA on a card": on_gpu(setup={"torch_version": "2.13.0+cu130", "cuda_version": "13.0"}),
        "a build for ROCm": beside_a_card(torch_version="2.13.0+rocm7", cuda_version=""),
        "Apple's GPU": beside_a_card(**CPU_BUILD, device="mps"),
        "a build for CUDA": beside_a_card(torch_version="2.13.0+cpu", cuda_version="13.0"),
        "a model so small that a GPU would not help": read(
            Loop(forward=0.2, backward=0.2, optimizer=0.1, setup=CPU_BUILD),
            0,
            gpu_memory_total_bytes=141e9,
            driver_cuda=12040,
        ),
    },
)

BUILD: dict[str, Any] = {"torch_version": "2.13.0+cu130", "cuda_version": "13.0", "driver_version": "470.82.01"}

DRIVER_TOO_OLD = CauseLoops(
    "driver-too-old",
    kind="at-most",
    first=True,
    well=beside_a_card(13000, **BUILD),
    sick={
        "CUDA 11.4 for a build of 13.0": Sick(
            beside_a_card(11040, **BUILD), 1.0, figures=("470.82.01", "CUDA 11.4"), cures=("CUDA 11",)
        )
    },
    near={
        "there is no card": Loop(setup=BUILD),
        "an older minor version serves": beside_a_card(12020, **{**BUILD, "cuda_version": "12.8"}),
        "forward compatibility": read(on_gpu(setup=BUILD), 0, gpu_memory_total_bytes=16e9, driver_cuda=11040),
    },
)

NO_IMAGE = "AcceleratorError: CUDA error: no kernel image is available for execution on the device"

UNSUPPORTED_ARCHITECTURE = CauseLoops(
    "unsupported-architecture",
    risk=True,
    first=True,
    bottleneck="unknown",
    well=read(on_gpu(), 0, architecture_support=2),
    sick={
        "although hardly a step was measured": Sick(
            with_outcome(on_gpu(steps=2, capability=(6, 1)), "failed", NO_IMAGE), figures=("sm_61",)
        ),
        "what torch's build says": Sick(read(on_gpu(), 0, architecture_support=0)),
    },
    near={
        "code that is translated at first use": read(on_gpu(), 0, architecture_support=1),
        "another error": with_outcome(on_gpu(), "failed", "RuntimeError: CUDA error: device-side assert"),
        "no GPU": Loop(),
    },
)

# ---- clocks ----------------------------------------------------------------------------------------------------------

LATER = [i >= READINGS // 2 for i in range(READINGS)]
PAUSES = [i % 2 == 0 for i in range(READINGS)]
"""Every second reading falls into a pause: NVML's utilization is of the last second, the clock of the moment."""
HOT: dict[str, Any] = {
    "clock_limit_bits": [0x20 if hot else 0 for hot in LATER],
    "sm_clock_mhz": [990.0 if hot else 1980.0 for hot in LATER],
    "sm_clock_max_mhz": 1980,
    "gpu_temperature_c": [92.0 if hot else 70.0 for hot in LATER],
    "gpu_util_pct": 95,
}
HELD: dict[str, Any] = {
    "clock_limit_bits": 0x2,
    "sm_clock_mhz": 1410,
    "sm_clock_max_mhz": 1980,
    "gpu_util_pct": 95,
    "gpu_power_limit_w": 700,
    "gpu_power_default_w": 700,
}


def hot(device: int = 0, **readings: Any) -> Recording:
    """Returns the recording of a busy card that is hot in its second half."""
    return read(on_gpu(), device, **{**HOT, **readings})


def held(**readings: Any) -> Recording:
    """Returns the recording of a busy card whose clocks a setting holds down."""
    return read(on_gpu(), 0, **{**HELD, **readings})


def resting(busy: float, idle: float) -> list[float]:
    """Returns readings of a card that rests every second time."""
    return [idle if rests else busy for rests in PAUSES]


def as_a_slice(recording: Recording) -> Recording:
    """Returns the recording as of a MIG slice, which has no utilization."""
    return replace(recording, series=tuple(one for one in recording.series if one.metric.name != "gpu_util_pct"))


IN_PAUSES = [5.0 if hot else 95.0 for hot in LATER]
"""Utilization of a card that is hot and slow in the pauses between bursts, and at its best at work."""

THROTTLED = CauseLoops(
    "throttled",
    kind="at-most",
    well=hot(clock_limit_bits=0, sm_clock_mhz=1980),
    sick={
        "half of the time at half the clock": Sick(
            hot(), 0.25, within=0.03, figures=("software thermal slowdown", "92 °C")
        ),
        "the clock of a pause is not the throttled one": Sick(
            hot(clock_limit_bits=resting(0x20, 0x21), sm_clock_mhz=resting(990.0, 345.0)), 0.5
        ),
    },
    near={
        "it idles": hot(clock_limit_bits=0x1),
        "the power limit of a busy card": hot(clock_limit_bits=0x4),
        "a setting of the display": hot(clock_limit_bits=0x100),
        "an idle card lowers its clocks by itself": hot(gpu_util_pct=3),
        "another card's heat": hot(1),
        "reasons of a pause": hot(gpu_util_pct=IN_PAUSES),
        "reasons of a MIG slice": as_a_slice(hot()),
    },
)

LOW = 1 - 1410 / 1980

CAPPED_CLOCKS = CauseLoops(
    "capped-clocks",
    kind="at-most",
    well=held(clock_limit_bits=0, sm_clock_mhz=1980),
    sick={
        "1410 of 1980 MHz": Sick(held(), LOW, cures=("nvidia-smi -rgc",)),
        "a lowered power limit": Sick(
            held(clock_limit_bits=0x4, gpu_power_limit_w=350), LOW, figures=("350 W", "700 W"), cures=("-pl 700",)
        ),
        "locked without a reason given": Sick(held(clock_limit_bits=0, sm_clock_mhz=900), 1 - 900 / 1980),
        "clocks of a pause do not count": Sick(
            held(clock_limit_bits=resting(0x2, 0x1), sm_clock_mhz=resting(1410.0, 345.0)), LOW
        ),
    },
    near={
        "idle": held(gpu_util_pct=5),
        "at its own power limit, as a busy card is": held(clock_limit_bits=0x4),
        "hot": held(clock_limit_bits=0x40),
        "a boost that is seldom reached": held(sm_clock_mhz=1830),
        "no reason, and not so low": held(clock_limit_bits=0, sm_clock_mhz=1500),
        "a half busy card, without a reason": held(clock_limit_bits=0, sm_clock_mhz=900, gpu_util_pct=45),
        "low in pauses alone": held(clock_limit_bits=resting(0x0, 0x1), sm_clock_mhz=resting(1980.0, 345.0)),
        "held at the maximum": held(clock_limit_bits=resting(0x2, 0x1), sm_clock_mhz=resting(1980.0, 345.0)),
        "clocks of an idle second": held(
            gpu_util_pct=resting(95.0, 4.0), clock_limit_bits=0, sm_clock_mhz=resting(1980.0, 345.0)
        ),
        "a MIG slice, of which it is not known": as_a_slice(held()),
    },
)

# ---- shared-gpu ------------------------------------------------------------------------------------------------------

ALONE: dict[str, Any] = {"gpu_memory_used_bytes": 41e9, "torch_reserved_bytes": 40e9, "gpu_util_pct": 95}


def shared(processes: float | None = None, nbytes: float = 0.0, util: float = 0.0, **readings: Any) -> Recording:
    """Returns the recording of a card with other processes on it, that hold so much and compute so much."""
    others = {"other_processes": processes, "other_processes_bytes": nbytes, "other_processes_util_pct": util}
    return read(on_gpu(), 0, **{**ALONE, **({} if processes is None else others), **readings})


SHARED_GPU = CauseLoops(
    "shared-gpu",
    kind="at-most",
    risk=True,
    well=shared(),
    sick={
        "two others compute": Sick(shared(2, 10e9, 40), 0.4, risk=False, figures=("2 other processes",)),
        "memory alone is a risk": Sick(shared(1, 30e9), figures=("38 %",)),
        "memory that nobody in this container holds": Sick(shared(gpu_memory_used_bytes=70e9)),
    },
    near={
        "nobody else": shared(0),
        "a desktop": shared(3, 5e8, 2),
        "a large context of its own": shared(0, gpu_memory_used_bytes=50e9),
    },
)

CAUSES = (MODEL_ON_CPU, CPU_ONLY_TORCH, DRIVER_TOO_OLD, UNSUPPORTED_ARCHITECTURE, THROTTLED, CAPPED_CLOCKS, SHARED_GPU)
