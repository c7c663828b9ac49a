"""Loops of the causes in `rules/host/`: waits for the GPU, launches, the loop's own Python, threads, debugging aids."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gpu_doctor.recording import LineCost, Recording
from gpu_doctor.recording.setup import Chore, InputFacts, ModelFacts, Traffic
from tests.support.recordings import (
    NAN,
    PINNED,
    Loop,
    calling,
    line,
    on_gpu,
    with_columns,
    with_more,
    with_outcome,
    zipped,
)
from tests.support.rule_loops.form import CauseLoops, Sick

NOT_TRAINED = {"optimizers": ()}

# ---- gpu-sync --------------------------------------------------------------------------------------------------------

ITEM = line("total += loss.item()", 0.6, "sync")
READING = on_gpu(sync=6.0, syncs=3.0, forward=1.0, backward=1.0, optimizer=1.0, gpu_gap=2.0, gpu_work=7.0).but(
    lines=(ITEM,)
)
LIMITED = READING.but(sync=1.0, other=5.0, gpu_gap=0.2, gpu_work=8.8, caught_up=1.0)

HOST_SYNC = CauseLoops(
    "host-sync",
    well=on_gpu(),
    sick={
        "the loss of every step": Sick(READING, 2 / 9, figures=("total += loss.item()", "3 syncs")),
        "predictions are fetched together": Sick(
            READING.but(backward=0.0, optimizer=0.0, setup=NOT_TRAINED, lines=()),
            2 / 9,
            cures=("torch.cat(kept).cpu()",),
            unsaid=("loss",),
        ),
        # the host's 8 ms without the wait are longer than the GPU's 3.5: of 9 ms a step 8 are left
        "the host's other work stays": Sick(
            READING.but(sync=1.0, other=5.0, gpu_gap=5.5, gpu_work=3.5), 1 / 9, named=("slow-python", "host-sync")
        ),
        "where the host limits the GPU it is a bound": Sick(
            LIMITED, 1 / 9, "at-most", named=("slow-python", "small-batch", "host-sync"), figures=("11 %",)
        ),
        "while the host waits, the GPU works": Sick(
            READING.but(gpu_gap=0.2, gpu_work=8.8, caught_up=1.0), 3 / 9, "at-most", named=("host-sync", "small-batch")
        ),
        "waits that were not counted": Sick(READING.but(syncs=NAN, lines=()), 2 / 9, unsaid=("a step", "total +=")),
    },
    near={
        "it only shows where the GPU works": READING.but(gpu_gap=0.05, gpu_work=8.95),
        "what it may idle within phases was not measured": READING.but(gpu_gap=0.2, gpu_work=8.8, caught_up=0.5),
        "the loader fills the gap": READING.but(wait=2.0, gpu_work=9.0),
        "its queue is full": LIMITED.but(caught_up=0.0),
        "no GPU": Loop(sync=6.0),
    },
)

TRIPPING = on_gpu(forward=6.0, sync=4.0, gpu_gap=0.5, gpu_work=15.5)
TRIPS = Traffic(to_device=300, to_device_bytes=3e8, to_host=100, to_host_bytes=1e8, round_trips=100, round_trip_s=0.25)
"""In a hundred steps of 16 ms one trip each, 2.5 ms from the host and back."""
COPYING = on_gpu(forward=6.0, transfer=4.0, sync=2.0, gpu_gap=4.5, gpu_work=11.5, pageable=2.0).but(
    loader={"num_workers": 4}
)
COPIES = Traffic(to_device=200, to_device_bytes=3e8, to_host=100, to_host_bytes=1.5e8, round_trips=100)
"""4 of 16 ms a step are copies, half of them back from the host, from where each trip takes 5 ms."""

DEVICE_ROUND_TRIPS = CauseLoops(
    "device-round-trips",
    bottleneck="compute",
    well=on_gpu(),
    sick={
        "one a step": Sick(with_more(TRIPPING, traffic=TRIPS), 0.25 / 1.632, figures=("1 round trip", "2.50 ms")),
        "the copy back is billed once": Sick(
            with_more(
                COPYING, traffic=replace(COPIES, round_trip_s=0.5, round_trip_bytes=1.5e8, round_trip_copy_s=0.4)
            ),
            0.272,
        ),
    },
    near={
        "no copy to the host": with_more(TRIPPING, traffic=Traffic(to_device=200, to_device_bytes=3e8)),
        "values that stay on the host": with_more(
            TRIPPING, traffic=Traffic(to_device=200, to_host=100, to_host_bytes=400.0)
        ),
        "a rare trip of an evaluation": with_more(
            TRIPPING, traffic=Traffic(to_device=200, to_host=2, round_trips=2, round_trip_s=0.25)
        ),
    },
)

# ---- threads and debugging aids --------------------------------------------------------------------------------------

CROWDED = Loop(cores=4.0, setup={"torch_threads": 16})
ON_CORES = Loop(cores=4.0, workers=2, wait=0.5, fetch=20.0, fetch_cpu=18.0, cpu_util=99.0).but(
    setup={"torch_threads": 4}
)

CPU_OVERSUBSCRIPTION = CauseLoops(
    "cpu-oversubscription",
    kind="at-most",
    bottleneck="compute",
    well=Loop(cores=4.0, setup={"torch_threads": 4}),
    sick={
        "of 16 threads 12 have no core": Sick(CROWDED, 0.75, settings=({"threads": 4},)),
        "a quota of the container counts": Sick(CROWDED.but(cores=1.5), 1 - 1.5 / 16, settings=({"threads": 1},)),
        "workers that compute take cores as well": Sick(ON_CORES, 0.31, within=0.1, settings=({"threads": 2},)),
    },
    near={
        "the number of threads was not read": Loop(cores=4.0),
        "workers that sleep": ON_CORES.but(fetch_cpu=0.5),
        "cores that are half idle": ON_CORES.but(cpu_util=50.0),
        "a loop that waits most of its time": CROWDED.but(wait=190.0),
        "on a GPU the threads have nothing to do": on_gpu(cores=4.0, setup={"torch_threads": 16}),
    },
)

PREDICTS = Loop(forward=10.0, backward=0.0, optimizer=0.0, setup=NOT_TRAINED)


def flagged(loop: Loop, **flags: Any) -> Loop:
    """Returns the loop with switches of torch."""
    return loop.but(setup={**loop.setup, "flags": flags})


DEBUG_MODE_ON = CauseLoops(
    "debug-mode-on",
    kind="at-most",
    bottleneck="compute",
    well=flagged(Loop(), anomaly_mode=False, profiler=False, launch_blocking=False),
    sick={
        "all of forward and backward": Sick(flagged(Loop(), anomaly_mode=True), 0.8),
        "the profiler": Sick(flagged(Loop(), profiler=True), 0.8),
        "half of the time": Sick(flagged(Loop(), anomaly_mode=True, anomaly_share=0.5), 0.4),
        "predictions under the profiler": Sick(flagged(PREDICTS, profiler=True), 1.0),
        "launches that block leave the GPU idle": Sick(
            flagged(on_gpu(gpu_util=60.0, caught_up=1.0, other=2.0, gpu_gap=2.0), launch_blocking=True),
            10 / 12,
            named=("slow-python", "debug-mode-on", "small-batch"),
        ),
        "deterministic algorithms too": Sick(
            flagged(Loop(), deterministic=True, anomaly_mode=True), 0.8, figures=("deterministic",)
        ),
    },
    near={
        "without a GPU no launch blocks": flagged(Loop(), launch_blocking=True),
        "a few profiled steps are looked at on purpose": flagged(Loop(), profiler=True, profiler_share=0.01),
        "predictions write no stack down": flagged(PREDICTS, anomaly_mode=True),
        "deterministic algorithms alone have no price": flagged(Loop(), deterministic=True),
    },
)

# ---- launch-bound ----------------------------------------------------------------------------------------------------

NO_ROOM = on_gpu(gpu_util=40.0, caught_up=1.0, tensor_active=0.0, peak_share=0.7)
"""A card without room for a larger batch."""
COMPILED = {"model": ModelFacts(compiled=True)}
SMALL_DATA = {**PINNED, "dataset_len": 1000}
ROWS = InputFacts(looked_at=40, shapes=1, shape=(32, 16), dtype="float32", device="cpu", per_step=1.0)
EACH = replace(ROWS, shape=(16,), per_step=32.0, most_per_step=64)
OPERATIONS: dict[str, Any] = {"graph_operations": 100, "inputs": ROWS, "parameters": 5000}
TINY = Loop(forward=1.2, loss=0.2, backward=2.5, optimizer=0.4, other=0.3, setup=OPERATIONS).but(
    loader={"dataset_len": 32000}
)
"""On a CPU: 4.3 of 4.6 ms go from operation to operation."""
LARGER = {"batch_size": 128}
COMPILE = {"compile": True}

LAUNCH_BOUND = CauseLoops(
    "launch-bound",
    kind="at-most",
    well=on_gpu(),
    sick={
        "one cause, and no hint for kernels that set no pace": Sick(
            NO_ROOM, 1.0, settings=(COMPILE,), figures=("100 %", "40 %")
        ),
        "compiled already": Sick(NO_ROOM.but(setup=COMPILED, loader=SMALL_DATA), 1.0, cures=("reduce-overhead",)),
        "only steps that emptied the queue": Sick(NO_ROOM.but(caught_up=0.9), 0.9, settings=(COMPILE,)),
        "NVML's reading is no price and no veto": Sick(NO_ROOM.but(gpu_util=99.0), 1.0, settings=(COMPILE,)),
        "NVML was not read": Sick(NO_ROOM.but(gpu_util=None), 1.0, settings=(COMPILE,)),
        "while the host waits, the GPU works": Sick(
            NO_ROOM.but(sync=90.0), 0.1, named=("host-sync", "launch-bound"), settings=(COMPILE,)
        ),
        "only phases that launch": Sick(
            NO_ROOM.but(forward=1.0, backward=1.0, optimizer=1.0, other=7.0, gpu_gap=7.0, gpu_work=3.0),
            0.3,
            named=("slow-python", "launch-bound"),
            settings=(COMPILE,),
        ),
        "a CPU that goes from operation to operation": Sick(
            TINY, 0.75 * 4.3 / 4.6, settings=(LARGER,), figures=("25.0 µs", "100")
        ),
        "workers hardly faster than the loop": Sick(
            TINY.but(workers=2, fetch=7.0, fetch_cpu=0.5), 1.0 - 3.5 / 4.6, settings=(LARGER,)
        ),
    },
    near={
        "a queue that is seldom empty": NO_ROOM.but(caught_up=0.1),
        "it waits for data": NO_ROOM.but(wait=20.0, gpu_gap=20.0, workers=4, fetch=120.0, fetch_cpu=10.0),
        "a CPU that computes": TINY.but(backward=9.0, forward=4.0),
        "a CPU that waits": TINY.but(wait=2.0),
        "nobody counted the operations": TINY.but(setup={}),
        "no more data for a larger batch": TINY.but(loader={"dataset_len": 1000}),
        "no loader": TINY.but(has_loader=False),
        "the optimizer is a state of its own": TINY.but(optimizer=6.0),
        "several losses": TINY.but(setup={**OPERATIONS, "optimizers": ("Adam", "Adam")}),
        "a frozen part": TINY.but(forward=9.0),
        "a loss of pieces": TINY.but(loss=1.2, setup={**OPERATIONS, "graph_operations": 500, "loss_operations": 450}),
        "a call for each sample": TINY.but(setup={**OPERATIONS, "inputs": EACH}),
    },
)

STATIC = InputFacts(looked_at=40, shapes=1, shape=(32, 128))
BARE = ModelFacts(device_bytes={"cuda:0": 1000})


def launching(model: ModelFacts = BARE, inputs: InputFacts = STATIC, **changes: Any) -> Loop:
    """Returns a loop on a GPU that waits for launches, with this model and these inputs."""
    loop = on_gpu(gpu_util=40.0, caught_up=1.0, tensor_active=0.0, peak_share=0.02)
    return loop.but(setup={"model": model, "inputs": inputs}).but(**changes)


NOT_COMPILED = CauseLoops(
    "not-compiled",
    kind="at-most",
    well=on_gpu(setup={"model": replace(BARE, compiled=True), "inputs": STATIC}),
    sick={
        "the small batch is the same symptom": Sick(
            launching(), 1.0, settings=(COMPILE, LARGER), figures=("32 x 128",)
        ),
        "a last batch is no change": Sick(launching(inputs=replace(STATIC, shapes=2)), 1.0, settings=(COMPILE, LARGER)),
        "a batch size that is not to be changed": Sick(
            launching(loader={**PINNED, "refusals": {"batch_size": "Your batch_sampler decides the batch size."}}),
            1.0,
            settings=(COMPILE,),
        ),
        "a loop that predicts has no trial of it": Sick(
            launching(backward=0.0, optimizer=0.0).but(setup={"model": BARE, "inputs": STATIC, **NOT_TRAINED}),
            1.0,
            settings=(LARGER,),
        ),
        "no more data for a larger batch": Sick(
            launching(loader=SMALL_DATA), 1.0, settings=(COMPILE,), unsaid=("batch_size",)
        ),
    },
    near={
        "a queue that is seldom empty": launching(caught_up=0.1),
        "compiled": launching(replace(BARE, compiled=True)),
        "compiled by a setting": launching(settings=COMPILE),
        "compiled again and again": launching(inputs=replace(STATIC, shapes=20)),
        "no Triton": launching(capability=(6, 1)),
    },
)

SMALL = on_gpu(gpu_util=50.0, peak_share=0.3, caught_up=1.0)

SMALL_BATCH = CauseLoops(
    "small-batch",
    kind="at-most",
    well=on_gpu(),
    sick={
        "room for four times as many": Sick(SMALL, 1.0, settings=(LARGER,)),
        "a loader whose batches cannot be changed": Sick(
            SMALL.but(loader={**PINNED, "refusals": {"batch_size": "Its own sampler makes the batches."}}),
            1.0,
            cures=("batch_size=128",),
        ),
    },
    near={
        "no room": SMALL.but(peak_share=0.7),
        "half of the steps do not empty the queue": SMALL.but(caught_up=0.4),
        "it would wait longer": SMALL.but(wait=5.0, gpu_gap=5.0),
        "no steps would be left": SMALL.but(loader={**PINNED, "dataset_len": 500}),
        "memory did not suffice": with_outcome(SMALL, "out-of-memory", "CUDA out of memory"),
    },
)

IDLE = on_gpu(gpu_util=50.0, peak_share=0.2, caught_up=1.0)


def accumulating(loop: Loop, batches: int = 4) -> Recording:
    """Returns the recording of a loop whose steps are made of so many micro-batches."""
    return with_columns(loop, batches=batches)


NEEDLESS_ACCUMULATION = CauseLoops(
    "needless-accumulation",
    kind="at-most",
    well=accumulating(on_gpu()),
    sick={
        "the small batch is the same symptom": Sick(
            accumulating(IDLE), 1.0, cures=("batch_size=128", "accumulation_steps = 1")
        ),
        "two loaders and two micro-batches": Sick(zipped(accumulating(IDLE, 2), 4), 1.0, figures=("2 micro-batches",)),
        "two loaders, one without workers": Sick(zipped(accumulating(IDLE, 2), 0), 1.0, figures=("2 micro-batches",)),
        "only what surely fits": Sick(accumulating(IDLE.but(peak_share=0.4)), 1.0, cures=("accumulation_steps = 2",)),
    },
    near={
        "one batch a step": IDLE,
        "two loaders in one step": zipped(IDLE.recording(), 4),
        "two loaders, one without workers": zipped(IDLE.recording(), 0),
        "three would not surely fit": accumulating(IDLE.but(peak_share=0.4), batches=3),
        "no room": accumulating(IDLE.but(peak_share=0.7)),
        "the GPU is behind its host": accumulating(IDLE.but(caught_up=0.05)),
        "it waits for data": accumulating(IDLE.but(wait=5.0, gpu_gap=5.0)),
    },
)


def toy(*shape: int) -> dict[str, Any]:
    """Returns the setup of a model of a thousand parameters."""
    return {"parameters": 1000, "inputs": InputFacts(looked_at=40, shapes=1, shape=shape, dtype="float32")}


TOY = on_gpu(batch=4096, caught_up=1.0, gpu_util=20.0, setup=toy(4096, 16))
BARE_TOY = TOY.but(setup={**toy(4096, 16), "model": ModelFacts()})

MODEL_TOO_SMALL = CauseLoops(
    "model-too-small",
    kind="at-most",
    well=on_gpu(batch=4096, setup=toy(4096, 16)),
    sick={
        "a large batch": Sick(TOY, 1.0),
        "compiling is the second cure": Sick(BARE_TOY, 1.0, settings=(COMPILE,)),
        "compiled by a setting": Sick(BARE_TOY.but(settings=COMPILE), 1.0, cures=("reduce-overhead",)),
        "a batch that holds the whole data set": Sick(TOY.but(batch=150, steps_per_epoch=1, setup=toy(150, 4)), 1.0),
    },
    near={
        "the GPU is busy": TOY.but(gpu_util=95.0, caught_up=0.0),
        "nobody looked": TOY.but(setup={}),
        "no GPU": Loop(batch=4096, setup=toy(4096, 16)),
    },
    other={"a small batch can grow first": (TOY.but(batch=32, setup=toy(32, 16)), ("small-batch",))},
)

# ---- own-python ------------------------------------------------------------------------------------------------------

LOGGING = Loop(other=10.0)
PLOT = line("plot(history)", 0.5)
UPDATE = line("p.data.add_(p.grad, alpha=-lr)", 0.4)
UPDATES = Loop(other=12.0, optimizer=0.0, setup={"optimizers": (), "optimizer_facts": ()})
"""A loop that changes its parameters itself."""
NO_MODULE = LOGGING.but(forward=0.0)
COPY = line("best = copy.deepcopy(model)", 0.5)
ACTS = tuple(replace(line(text, 0.2), line=7 + i) for i, text in enumerate(("a = pi.sample()", "env.step(a)")))
METRIC = replace(line("acc = accuracy(out.tolist(), y)", 0.25), before_backward=True, outside_torch=True)
LOSS = replace(line("loss = criterion(out, y)", 0.25), before_backward=True)
AFTER_PLOT = replace(line("plot(history)", 0.2), line=9, outside_torch=True)
YIELDED = replace(line("yield rows[i]", 0.15), pulled=True)
COLLECTS = LineCost("<cell>", 9, "f", "gc.collect()", "other", 0.2)
BUSY_GPU = on_gpu(other=5.0, gpu_gap=0.1, gpu_work=14.9)
MASKING = on_gpu(forward=1.0, backward=1.0, optimizer=1.0, other=6.0, gpu_gap=2.5, gpu_work=6.5).but(
    lines=(line("hard = out[out.detach().amax(1) < 0.5].sum(0)", 6 / 9),)
)
IDLE_GPU = on_gpu(other=5.0, gpu_gap=5.0, gpu_work=10.0)


def stalled(*at: int, other: float = 0.2, chores: tuple[Chore, ...] | None = None, **changes: Any) -> Recording:
    """Returns the recording of 100 steps of 10 ms, a few of which took 300 ms more outside of all phases."""
    recording = Loop(other=other, **changes).recording()
    stall_s = np.where(np.isin(np.arange(100), at), 0.3, 0.0)
    return replace(with_columns(recording, wall_s=recording.steps.wall_s + stall_s), chores=chores)


SLOW_PYTHON = CauseLoops(
    "slow-python",
    sick={
        "a plot": Sick(
            LOGGING.but(lines=(PLOT, line("y = model(x)", 0.3, "forward"))),
            0.5,
            figures=("plot(history)",),
            unsaid=("model(x)",),
        ),
        "no look fell": Sick(LOGGING, 0.5, unsaid=("`",)),
        **{
            f"whatever it does ({in_torch}, {outside})": Sick(
                LOGGING.but(lines=(replace(COPY, in_torch=in_torch, outside_torch=outside),)), 0.5
            )
            for in_torch in (False, True)
            for outside in (False, True)
        },
        "several lines": Sick(LOGGING.but(lines=ACTS), 0.5, figures=("25 %", "a = pi.sample()", "env.step(a)")),
        "a metric before the backward": Sick(Loop(loss=10.0, lines=(METRIC, LOSS)), 0.25),
        "a plot beside updates by hand": Sick(
            UPDATES.but(lines=(UPDATE, AFTER_PLOT)), 0.2, within=0.07, unsaid=("p.grad",)
        ),
        "a plot beside plain tensors": Sick(
            NO_MODULE.but(lines=(UPDATE, AFTER_PLOT)), 0.21, within=0.07, unsaid=("p.grad",)
        ),
        "a GPU that waits": Sick(IDLE_GPU, 1 / 3),
        "a line that waits for the GPU and looks like any other": Sick(MASKING, 2.5 / 9, figures=("hard = ",)),
        "what is left of costly calls": Sick(
            calling(LOGGING.but(lines=(line("plot(history)", 0.3), COLLECTS)), "collect-garbage", 0.2, 100),
            0.3,
            named=("slow-python", "garbage-collected-each-step"),
            unsaid=("gc.collect",),
        ),
        "a stall that comes again": Sick(stalled(20, 50, 80), 0.48, within=0.02),
        "between two epochs": Sick(stalled(50, steps_per_epoch=50), 0.24, within=0.02),
        "a single chore is not taken out twice": Sick(
            stalled(50, other=5.0, chores=(Chore("checkpoint", 1, 0.3, other_s=0.3),)), 0.5 / (1.5 + 0.3)
        ),
        "a part too small for a cause of its own": Sick(LOGGING.but(lines=(PLOT, replace(YIELDED, share=0.05))), 0.5),
        "beside batches that it makes": Sick(
            LOGGING.but(lines=(PLOT, YIELDED)), 0.5 * 0.5 / 0.65, named=("slow-python", "slow-generator")
        ),
    },
    near={
        "below a tenth": Loop(other=0.9),
        "the loss is computing": Loop(other=0.0, loss=10.0),
        "a metric inside of torch": Loop(loss=10.0, lines=(LOSS, replace(METRIC, outside_torch=False))),
        "updates by hand": UPDATES.but(lines=(replace(UPDATE, share=0.6),)),
        "plain tensors": NO_MODULE.but(lines=(UPDATE,)),
        "behind a busy GPU": BUSY_GPU,
        "a costly call has a cause of its own": calling(LOGGING, "checkpoint", 0.45, 10),
        "a single step that stood still": stalled(50),
    },
)

MADE = replace(line("yield encode(rows)", 0.5), pulled=True)
MAKING = Loop(has_loader=False, other=10.0, lines=(MADE,))

SLOW_GENERATOR = CauseLoops(
    "slow-generator",
    sick={"batches of a generator": Sick(MAKING, 0.5, figures=("encode(rows)",))},
    near={"little": MAKING.but(other=0.5), "behind a busy GPU": BUSY_GPU.but(lines=(MADE,))},
    other={"a line that is no generator's": (MAKING.but(lines=(replace(MADE, pulled=False),)), ("slow-python",))},
)

FLIP = replace(line("x = augment(x)", 0.5), before_forward=True)
AUGMENTING = Loop(other=10.0, lines=(FLIP,))

AUGMENTATION_IN_LOOP = CauseLoops(
    "augmentation-in-loop",
    sick={
        "on the loader's batch": Sick(AUGMENTING, 0.5, figures=("augment(x)",), cures=("batch_size=32",)),
        "beside a plot": Sick(
            AUGMENTING.but(lines=(replace(FLIP, share=0.3), replace(line("plot(history)", 0.2), line=9))),
            0.3,
            named=("augmentation-in-loop", "slow-python"),
        ),
        "beside an idle GPU": Sick(IDLE_GPU.but(lines=(FLIP,)), 1 / 3, within=0.02),
    },
    near={
        "after the forward": AUGMENTING.but(lines=(replace(FLIP, before_forward=False),)),
        "there is no loader whose workers could do it": AUGMENTING.but(has_loader=False),
        "little": AUGMENTING.but(other=0.5),
        "one look tells nothing": replace(
            AUGMENTING.but(lines=(replace(FLIP, share=0.1), line("log(x)", 0.4))).recording(), looks=10
        ),
        "behind a busy GPU": BUSY_GPU.but(lines=(FLIP,)),
    },
)

COMPUTES = line("h = x @ self.w + self.b", 0.2, phase="forward")
STATISTICS = replace(line("self.seen.append(h.tolist())", 0.4, phase="forward"), outside_torch=True)
KEEPING = Loop(forward=12.0, lines=(COMPUTES, STATISTICS))
"""12 of 18 ms are forwards, two thirds of them statistics."""


def keeping(phase: str) -> Loop:
    """Returns the loop with the same lines in another phase, which takes 12 ms."""
    lines = tuple(replace(one, phase=phase) for one in KEEPING.lines)
    return KEEPING.but(forward=4.0, backward=4.0, lines=lines).but(**{phase: 12.0})


PYTHON_IN_FORWARD = CauseLoops(
    "python-in-forward",
    sick={
        **{
            phase: Sick(
                keeping(phase),
                0.4,
                within=0.05,
                named=("python-in-forward", "heavy-evaluation") if phase == "evaluation" else None,
                figures=("self.seen.append",),
                unsaid=("self.w",),
            )
            for phase in ("forward", "backward", "optimizer", "evaluation")
        },
        "a GPU that waits for launches": Sick(
            on_gpu(forward=12.0, lines=(COMPUTES, STATISTICS), caught_up=1.0),
            0.4,
            within=0.1,
            named=("python-in-forward", "small-batch"),
        ),
    },
    near={
        "it computes": KEEPING.but(lines=(replace(COMPUTES, share=0.6),)),
        "little": KEEPING.but(lines=(COMPUTES, replace(STATISTICS, share=0.02))),
        "torch's own Python": KEEPING.but(lines=(COMPUTES, replace(STATISTICS, in_torch=True))),
        "what a debugging aid runs is its own": KEEPING.but(setup={"flags": {"anomaly_mode": True}}),
        "two looks tell nothing": replace(KEEPING.recording(), looks=4),
        "behind a busy GPU": on_gpu(forward=12.0, lines=(COMPUTES, STATISTICS)),
    },
)

SAVING = Loop(other=5.0)

CHECKPOINT_STALL = CauseLoops(
    "checkpoint-stall",
    sick={
        "ten of 391 KiB": Sick(
            calling(SAVING, "checkpoint", 0.3, 10, 4e6), 0.3, figures=("10 times", "391 KiB", "line 9"), unsaid=("gc.",)
        ),
        "a third of the time": Sick(calling(SAVING, "checkpoint", 5 / 15, 10), 1 / 3),
        "beside other Python": Sick(
            calling(Loop(other=10.0), "checkpoint", 0.1, 10), 0.1, named=("slow-python", "checkpoint-stall")
        ),
        "a GPU stands still too": Sick(calling(on_gpu(), "checkpoint", 0.1, 2), 0.1),
    },
    near={
        "cheap": calling(SAVING, "checkpoint", 0.03, 2),
        "no checkpoint": calling(SAVING, "collect-garbage", 0.3, 10),
        "one does not tell how often they come": calling(SAVING, "checkpoint", 0.3, 1),
    },
)

COLLECTING = calling(Loop(other=10.0), "collect-garbage", 0.5, 100)
IN_A_LIBRARY = tuple(replace(one, text="out = pipeline(training=train)") for one in COLLECTING.chores or ())

GARBAGE_COLLECTED = CauseLoops(
    "garbage-collected-each-step",
    sick={
        "each step": Sick(COLLECTING, 0.5),
        # PyKEEN's training loop: no line of the user's collects, and freezing made 5.6 s of it 1.5 s
        "in a library": Sick(replace(COLLECTING, chores=IN_A_LIBRARY), 0.5, cures=("gc.freeze()",)),
    },
    near={
        "once, and cheap": calling(Loop(), "collect-garbage", 0.01, 1),
        "a checkpoint": calling(Loop(other=5.0), "checkpoint", 0.3, 10),
        "once before the loop gets going": calling(Loop(other=5.0), "collect-garbage", 0.3, 1),
    },
)

CACHE_EMPTIED = CauseLoops(
    "cache-emptied-each-step",
    bottleneck="compute",
    well=on_gpu(),
    sick={"each step": Sick(calling(on_gpu(other=2.0), "empty-cache", 0.1, 100), 0.1)},
    near={
        "cheap": calling(on_gpu(), "empty-cache", 0.01, 100),
        "on a CPU the call does nothing": calling(Loop(other=2.0), "empty-cache", 0.1, 100),
        "a call between two phases may be meant": calling(on_gpu(other=2.0), "empty-cache", 0.1, 40),
    },
)

CAUSES = (
    HOST_SYNC,
    DEVICE_ROUND_TRIPS,
    CPU_OVERSUBSCRIPTION,
    DEBUG_MODE_ON,
    LAUNCH_BOUND,
    NOT_COMPILED,
    SMALL_BATCH,
    NEEDLESS_ACCUMULATION,
    MODEL_TOO_SMALL,
    SLOW_PYTHON,
    SLOW_GENERATOR,
    AUGMENTATION_IN_LOOP,
    PYTHON_IN_FORWARD,
    CHECKPOINT_STALL,
    GARBAGE_COLLECTED,
    CACHE_EMPTIED,
)
