"""Loops of the causes in `rules/memory/`: memory that is full, in pieces, or grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_doctor.recording import Recording
from gpu_doctor.recording.setup import EvaluationFacts, KeptBatches, KeptGraphs, World
from tests.support.recordings import NAN, READINGS, Loop, on_gpu, read, with_more, with_outcome
from tests.support.rule_loops.form import CauseLoops, Sick

MIB, GIB = float(1 << 20), float(1 << 30)
PREDICTS: dict[str, Any] = {"backward": 0.0, "optimizer": 0.0}
NOT_TRAINED: dict[str, Any] = {"optimizers": ()}

# ---- out-of-memory ---------------------------------------------------------------------------------------------------

MESSAGE = (
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 79.00 GiB "
    "of which 3.00 GiB is free. Including non-PyTorch memory, this process has 75.50 GiB memory in use. "
    "Of the allocated memory "
    "74.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated."
)
REFUSED = "RuntimeError: [enforce fail at alloc_cpu.cpp:119] DefaultCPUAllocator: can't allocate memory"


def ended(loop: Loop, reason: str = MESSAGE, outcome: str = "out-of-memory") -> Recording:
    """Returns the recording of a loop that ended so."""
    return with_outcome(loop, outcome, reason)


TRAINING = on_gpu(batch=64, setup={"parameter_bytes": 1 << 30, "optimizers": ("Adam",)})
PREDICTING = on_gpu(steps=30, batch=64, setup={"parameter_bytes": 8 << 30, **NOT_TRAINED}, **PREDICTS)
HALF_BATCH = {"batch_size": 32}
FIGURES = ("8.0 GiB", "3.0 GiB")

OUT_OF_MEMORY = CauseLoops(
    "out-of-memory",
    risk=True,
    well=on_gpu(),
    sick={
        **{
            f"in step {steps}": Sick(ended(TRAINING.but(steps=steps)), figures=FIGURES, settings=(HALF_BATCH,))
            for steps in (100, 3, 1)
        },
        "predictions keep no gradients first": Sick(
            ended(PREDICTING), settings=(HALF_BATCH,), cures=("inference_mode",)
        ),
        "predictions one by one": Sick(ended(PREDICTING.but(batch=1)), cures=("half precision",), unsaid=("batch of",)),
        "a model that predicts and is too large": Sick(
            ended(PREDICTING.but(setup={"parameter_bytes": 80 << 30, **NOT_TRAINED})), unsaid=("train",)
        ),
        "pieces": Sick(
            ended(on_gpu(), MESSAGE.replace("1.00 GiB is reserved", "20.00 GiB is reserved")),
            settings=({"batch_size": 16},),
            cures=("expandable_segments",),
        ),
        "neighbours": Sick(
            ended(on_gpu(), MESSAGE.replace("Including", "Process 4242 has 40.00 GiB memory in use. Including")),
            settings=({"batch_size": 16},),
            cures=("other processes",),
            unsaid=("expandable",),
        ),
        "a container's process is not another": Sick(
            ended(on_gpu(), MESSAGE.replace("Including non-PyTorch memory, this process", "Process 77")),
            settings=({"batch_size": 16},),
            unsaid=("other processes",),
        ),
        "a model too large for any batch": Sick(
            ended(on_gpu(setup={"parameter_bytes": 25 << 30, "optimizers": ("AdamW",)}))
        ),
        "the host's memory": Sick(ended(Loop(wait=0.4, workers=4), REFUSED), settings=({"num_workers": 2},)),
        "a loader that refuses fewer workers": Sick(
            ended(
                Loop(wait=0.4, workers=2, loader={"refusals": {"num_workers": "The loader keeps its iterator."}}),
                REFUSED,
            )
        ),
        # torch says it as a plain RuntimeError, so the run counts as failed
        "before what made the run slow": Sick(
            ended(Loop(other=30.0), "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096", "failed"),
            named=("out-of-memory", "slow-python"),
        ),
        "an unknown message invents nothing": Sick(
            ended(on_gpu(), "RuntimeError: CUDA error: out of memory"), settings=({"batch_size": 16},), unsaid=FIGURES
        ),
    },
    near={
        "a full card": on_gpu(peak_share=0.99),
        "another failure": ended(on_gpu(), "ValueError: out of cheese", "failed"),
    },
)

FULL = on_gpu(peak_share=0.95)
FULL_PREDICTING = FULL.but(setup=NOT_TRAINED, **PREDICTS)
NO_GRAD = "with torch.no_grad():\n    model(x)"

NEAR_OUT_OF_MEMORY = CauseLoops(
    "near-out-of-memory",
    risk=True,
    well=on_gpu(),
    sick={
        "95 % at its peak": Sick(FULL, figures=("95 %",)),
        "what CUDA and others hold counts": Sick(
            read(on_gpu(peak_share=0.8), torch_reserved_bytes=66e9, gpu_memory_used_bytes=77e9),
            named=("near-out-of-memory", "shared-gpu"),
            figures=("94 %",),
        ),
        "before what is worth a trial": Sick(
            FULL.but(tensor_active=0.0), named=("near-out-of-memory", "full-precision")
        ),
        "predictions keep no graph": Sick(FULL_PREDICTING, cures=("inference_mode", "batch_size=16")),
        "predictions without a loader": Sick(
            FULL_PREDICTING.but(source=NO_GRAD, has_loader=False), cures=("split",), unsaid=("inference_mode",)
        ),
        "some forwards recorded gradients": Sick(
            FULL_PREDICTING.but(setup={**NOT_TRAINED, "evaluation": EvaluationFacts(9, 9)}, source=NO_GRAD),
            cures=("inference_mode",),
        ),
    },
    near={
        "a cache that fills the card": read(
            on_gpu(peak_share=0.5), torch_reserved_bytes=78e9, gpu_memory_used_bytes=79e9
        )
    },
)


def cached(peak_share: float, reserved: float | Sequence[float], retries: float = 0, split: float = 0.0) -> Recording:
    """Returns the recording of a card with this peak, and of which torch reserved so many bytes."""
    return read(
        on_gpu(peak_share=peak_share),
        torch_reserved_bytes=reserved,
        torch_alloc_retries=retries,
        torch_inactive_split_bytes=split,
    )


FRAGMENTED_MEMORY = CauseLoops(
    "fragmented-memory",
    risk=True,
    well=cached(0.6, 60e9),
    sick={
        "free pieces": Sick(
            cached(0.3, [10e9] * 4 + [70e9] * 20, split=20e9), cures=("expandable_segments",), figures=("18.6 GiB",)
        ),
        "a third of it taken in this run": Sick(cached(0.3, [45e9] * 4 + [70e9] * 20, split=20e9)),
        "retries beside unused memory": Sick(cached(0.7, 76e9, 3), figures=("3 allocations",)),
    },
    near={
        "an earlier cell's cache": cached(0.2, 60e9),
        "twice of little is missed by nobody": cached(0.1, [1e9] * 4 + [30e9] * 20),
        "a card that is simply full": cached(0.95, 78e9, 9),
    },
)

# ---- memory-growth ---------------------------------------------------------------------------------------------------

KEEPS = "for x, y in loader:\n    loss = criterion(model(x), y)\n    loss.backward()\n    losses.append(loss)\n"
EXPORT = "outs = []\nwith torch.inference_mode():\n    for x in loader:\n        outs.append(model(x))\n"
SLOW = Loop(steps=400, steps_per_epoch=50)
FIRST_EPOCH = SLOW.but(steps_per_epoch=20_000)
PROVED = {"kept_graphs": KeptGraphs(40, 40)}
"""The graphs of all steps that were followed are still there."""
RAMP = np.linspace(0.0, 1.0, READINGS)
NOISE = np.random.default_rng(0).standard_normal(READINGS)


def held(nbytes: Sequence[float] | NDArray[Any] | float, loop: Loop = SLOW, available: float = 8 * GIB) -> Recording:
    """Returns the recording of a loop whose process held so much."""
    machine = {"host_memory_available_bytes": available, "host_memory_total_bytes": 16 * GIB}
    return read(loop, None, process_held_bytes=nbytes, process_rss_bytes=nbytes, **machine)


GRADUAL = GIB + 200 * MIB * RAMP
MUCH = GIB + 2 * GIB * RAMP
LOSSES = SLOW.but(source=KEEPS, setup=PROVED)
FAR = SLOW.but(forward=400.0, source=KEEPS)
"""A small model on a large machine: 40 kB a step would take days to fill it."""
SWING = np.where(np.arange(READINGS) % 3 == 0, 20e9, 0.0)
"""Activations, in the middle of a step."""
PREDICTED = SLOW.but(steps_per_epoch=400, source=EXPORT, setup=NOT_TRAINED, **PREDICTS)


def graphs_alive(alive: int, loop: Loop = FAR) -> Loop:
    """Returns the loop, of 40 steps of which so many graphs are still there."""
    return loop.but(setup={"kept_graphs": KeptGraphs(40, alive)})


CYCLED = KeptBatches(25, 25, 2.0 * MIB, "batches", "itertools.cycle")
"""Of the loop's 400 steps, a batch each."""
BY_BATCHES = FIRST_EPOCH.but(loader={"batches": 20_000})
PASS_ENDS = BY_BATCHES.but(loader={"batches": 500})


def keeping(kept: KeptBatches, rise: float = 1.0, loop: Loop = BY_BATCHES, readings: int = READINGS) -> Recording:
    """Returns the recording of a loop whose memory rose by this part of the batches that it kept."""
    grown = GIB + rise * 400 * kept.batch_bytes * np.linspace(0.0, 1.0, readings)
    return held(grown, loop.but(setup={"kept_batches": kept}), available=100 * GIB)


ONLY_LIKE_GROWTH: dict[str, NDArray[Any]] = {
    "warming up": 300 * MIB * (1 - np.exp(-5 * RAMP)),
    "an allocator that steps up once": 300 * MIB * (RAMP > 0.5),
    "twice": 300 * MIB * (RAMP > 0.3) + 300 * MIB * (RAMP > 0.7),
    "a list that is full": 300 * MIB * np.minimum(4 * RAMP, 1.0),
    "less and less": -300 * MIB * RAMP,
    "a saw": 300 * MIB * (RAMP * 3 % 1.0),
    "noise": 300 * MIB * NOISE,
}
HIGHER = (0.0, 0.1, 0.2, 0.5, 0.7, 1.0)

MEMORY_GROWTH = CauseLoops(
    "memory-growth",
    risk=True,
    well=held(GIB + 5 * MIB * NOISE),
    sick={
        "losses with their graphs": Sick(
            held(GRADUAL, LOSSES),
            figures=("line 4", "`loss`", "16\u202f000 more steps"),
            cures=("losses.append(loss.item())",),
        ),
        "on a GPU its memory, and no number to wait for": Sick(
            read(
                read(
                    on_gpu(steps=400, steps_per_epoch=50, source=KEEPS, setup=PROVED),
                    torch_allocated_bytes=5e9 + 10e9 * RAMP + SWING,
                    torch_peak_bytes=25e9 + 10e9 * RAMP,
                ),
                None,
                process_held_bytes=4e9,
            ),
            cures=("loss.detach()",),
        ),
        "after the first epoch no line is needed": Sick(
            held(GIB + 400 * MIB * RAMP), cures=("weakref.WeakSet",), unsaid=("line",)
        ),
        "a cache that will not fit": Sick(held(MUCH, FIRST_EPOCH, GIB)),
        "a line whose graphs are let go": Sick(
            held(MUCH, graphs_alive(0, FIRST_EPOCH.but(source=KEEPS)), GIB), unsaid=("line 4",)
        ),
        **{
            f"outputs that will not fit, {workers} workers": Sick(
                held(MUCH, PREDICTED.but(workers=workers, steps_per_epoch=20_000)), cures=("memmap",), unsaid=("loss",)
            )
            for workers in (0, 4)
        },
        "outputs with their graphs": Sick(
            held(MUCH, PREDICTED.but(steps_per_epoch=20_000, setup={**NOT_TRAINED, **PROVED})),
            cures=("inference_mode", "memmap"),
        ),
        "graphs that outlive their steps need no near limit": Sick(
            held(GIB + 16 * MIB * RAMP, graphs_alive(40), 400 * GIB), figures=("line 4", "`loss`", "40 steps")
        ),
        "graphs that no line is seen to keep": Sick(
            held(GIB + 16 * MIB * RAMP, graphs_alive(40, FAR.but(source="train(model, loader)\n")), 400 * GIB),
            figures=("40 steps",),
        ),
        "few readings, each higher": Sick(held(GIB + 200 * MIB * np.asarray(HIGHER), LOSSES)),
        **{
            f"batches of a cycle, {readings} readings": Sick(
                keeping(CYCLED, readings=readings),
                figures=("`batches` (itertools.cycle)", "2 MiB", "25 batches"),
                cures=("yield from loader",),
            )
            for readings in (READINGS, 4)
        },
        "a cycle ends with its pass": Sick(keeping(CYCLED, loop=PASS_ENDS), figures=("whole pass",)),
        "a list does not": Sick(
            keeping(replace(CYCLED, keeper="seen", kind="list"), loop=PASS_ENDS),
            figures=("more steps",),
            cures=("maxlen",),
        ),
        "something unnamed": Sick(keeping(replace(CYCLED, keeper="", kind="")), unsaid=("`batches`", "itertools")),
    },
    near={
        "nothing was read": SLOW.but(source=KEEPS),
        "a cache that fits": held(MUCH, FIRST_EPOCH, 200 * GIB),
        "a line alone proves nothing within the first epoch": held(GRADUAL, FIRST_EPOCH.but(source=KEEPS), 20 * GIB),
        **{
            f"outputs of {epochs} batches, {workers} workers": held(
                MUCH, PREDICTED.but(workers=workers, steps_per_epoch=epochs)
            )
            for workers in (0, 4)
            for epochs in (400, 800)
        },
        **{kind: held(GIB + shape) for kind, shape in ONLY_LIKE_GROWTH.items()},
        **{
            f"{kind}, beside a line": held(GIB + shape, SLOW.but(source=KEEPS))
            for kind, shape in ONLY_LIKE_GROWTH.items()
        },
        "too little to tell": held(GIB + 150 * MIB * RAMP),
        "a short run": read(SLOW, None, process_held_bytes=[1e9, 2e9, 3e9, 4e9, 5e9]),
        "forty steps": held(GIB + 400 * MIB * RAMP, Loop(steps=40, steps_per_epoch=10)),
        "a rise that takes weeks": held(GIB + 300 * MIB * RAMP, SLOW.but(forward=4000.0), 4000 * GIB),
        "a list that is cleared each epoch": held(GIB + 16 * MIB * RAMP, graphs_alive(5), 400 * GIB),
        "nobody looked for graphs": held(GIB + 16 * MIB * RAMP, FAR, 400 * GIB),
        "single pages": held(GIB + 2 * MIB * RAMP, graphs_alive(40), 400 * GIB),
        "few readings, one lower": held(GIB + 200 * MIB * np.asarray([0.0, 0.1, 0.6, 0.5, 0.7, 1.0]), LOSSES),
        "one batch is gone": keeping(replace(CYCLED, alive=24)),
        "batches within a bound": keeping(replace(CYCLED, bounded=True)),
        "the dataset holds the batches": keeping(CYCLED, rise=0.0),
        "less than the batches have": keeping(CYCLED, rise=0.3, readings=4),
        "little batches": keeping(replace(CYCLED, batch_bytes=0.5 * MIB)),
    },
)

# ---- host-memory-pressure --------------------------------------------------------------------------------------------

EIGHT = Loop(wait=0.4, workers=8)
LOW = {"host_memory_available_bytes": 0.5 * GIB, "host_memory_total_bytes": 32 * GIB, "process_rss_bytes": 4 * GIB}
ROOM = {"host_memory_available_bytes": 10 * GIB, "host_memory_total_bytes": 32 * GIB}
PLENTY = {"host_memory_available_bytes": 20 * GIB, "host_memory_total_bytes": 32 * GIB}
KILLED = "RuntimeError: DataLoader worker (pid 68) is killed by signal: Killed. "
GONE = "RuntimeError: DataLoader worker (pid(s) 68) exited unexpectedly"


def short_of(loop: Loop = EIGHT, workers_bytes: float = 40 * GIB) -> Recording:
    """Returns the recording of a machine with half a GiB left, whose workers hold so much."""
    return read(loop, None, **LOW, workers_rss_bytes=workers_bytes)


def killed(reason: str, kills: float, loop: Loop = EIGHT) -> Recording:
    """Returns the recording of a run that ended so; the last reading before saw plenty of memory."""
    made = with_more(loop, outcome="failed" if reason else "completed", reason=reason)
    return read(made.but(setup={"world": World(oom_kills=kills)}), None, **PLENTY)


HOST_MEMORY_PRESSURE = CauseLoops(
    "host-memory-pressure",
    risk=True,
    well=read(EIGHT, None, **PLENTY),
    sick={
        "shared pages are counted in each worker": Sick(
            short_of(), settings=({"num_workers": 4},), figures=("27.5 GiB",)
        ),
        "a loader that refuses fewer workers": Sick(
            short_of(EIGHT.but(loader={"refusals": {"num_workers": "The loader holds a running iterator."}}))
        ),
        "two workers": Sick(short_of(EIGHT.but(workers=2)), settings=({"num_workers": 1},), cures=("1 loader worker",)),
        "workers that hold little are not taken away": Sick(short_of(workers_bytes=GIB)),
        "swapping": Sick(read(EIGHT, None, **ROOM, process_swapped_bytes=GIB, swap_in_bytes_per_s=5e6)),
        "a worker that the system killed": Sick(killed(KILLED, 1.0), figures=("32.0 GiB", KILLED)),
        "a worker that is gone": Sick(killed(GONE, 1.0), figures=("32.0 GiB", GONE)),
        "before what makes it slow": Sick(
            killed(GONE, 2.0, EIGHT.but(wait=60.0, fetch=480.0)), named=("host-memory-pressure", "slow-getitem")
        ),
        "torch's word, where the kernel does not count": Sick(killed(KILLED, NAN), figures=(KILLED,)),
        "another process that was killed": Sick(killed("", 1.0)),
    },
    near={
        "nothing was read": EIGHT,
        "a twentieth of a large machine is plenty": read(
            EIGHT, None, host_memory_available_bytes=20 * GIB, host_memory_total_bytes=1024 * GIB
        ),
        "others' swapping": read(EIGHT, None, **ROOM, process_swapped_bytes=0, swap_in_bytes_per_s=5e7),
        "it may as well have crashed": killed(GONE, NAN),
        "killed by hand": killed(KILLED, 0.0),
        "gone by hand": killed(GONE, 0.0),
        "nobody was killed": killed("", 0.0),
    },
)

CAUSES = (OUT_OF_MEMORY, NEAR_OUT_OF_MEMORY, FRAGMENTED_MEMORY, MEMORY_GROWTH, HOST_MEMORY_PRESSURE)
