"""Loops of the causes in `rules/input/`: waits for data, workers, beginnings of epochs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gpu_doctor.diagnosis.rules.prescriptions import CANNOT, REPEATS
from gpu_doctor.recording import Fetch, LoaderSetup, Recording, Setup
from gpu_doctor.recording.setup import EvaluationFacts, World
from tests.support.recordings import KEY, Loop, fetched, line, on_gpu, with_more
from tests.support.rule_loops.form import CauseLoops, Sick

FED: dict[str, Any] = {"fetch_cpu": 1.0, "consumer_cpu": 10.0}
"""A fetch that sleeps, of a loop with 10 ms of CPU a step."""
IN_MAIN = {"refusals": {"num_workers": "the dataset lives in __main__"}}
STREAM = {"dataset_kind": "iterable", "sampler": ""}

# ---- data-starved ----------------------------------------------------------------------------------------------------

SLEEPING = Loop(wait=40.0, cores=2.0, **FED)
LATE = Loop(wait=4.0, edge=1000.0, steps=400, steps_per_epoch=100).but(
    loader={"sampler": "RandomSampler", "dataset_len": 20_000_000}
)
"""A second of shuffling every 100 steps of 14 ms: workers hide the 4 ms of each step, not the second."""

LOADER_WITHOUT_WORKERS = CauseLoops(
    "loader-without-workers",
    sick={
        "a sleeping dataset, not capped at the cores": Sick(
            SLEEPING.but(lines=(line("time.sleep(1e-4)", 0.7, "data_wait"),)),
            0.8,
            settings=({"num_workers": 4},),
            gain=4.0,
            figures=("num_workers=0", "80 %", "time.sleep(1e-4)"),
        ),
        "a loader that refuses workers": Sick(SLEEPING.but(loader=IN_MAIN), 0.8, gain=4.0, cures=("num_workers=",)),
        "the late begin of epochs is not billed": Sick(
            LATE,
            399 * 4 / (399 * 14 + 3 * 1000),
            named=("slow-epoch-start", "loader-without-workers"),
            settings=({"num_workers": 1},),
            gain=1.2,
        ),
    },
    near={
        "4 % of the time": Loop(wait=0.4),
        "workers that are hidden": SLEEPING.but(workers=4, wait=0.1, fetch=40.0),
        "the GPU does not notice": on_gpu(wait=6.0, gpu_gap=0.1, gpu_work=16.0, loader={}),
        "data in memory": Loop(wait=0.4, forward=0.2, backward=0.2, optimizer=0.1, batch=128, batch_bytes=1.3e5),
        "one core that computes": Loop(wait=40.0, cores=1.0),
    },
)

BUSY = Loop(wait=10.0, workers=2, fetch=40.0, cores=2.0, **FED)

TOO_FEW_WORKERS = CauseLoops(
    "too-few-workers",
    sick={
        "two busy workers": Sick(BUSY, 0.5, settings=({"num_workers": 4},), gain=2.0, unsaid=("ready",)),
        "a loader that refuses workers": Sick(BUSY.but(loader=IN_MAIN), 0.5, gain=2.0, cures=("num_workers=",)),
        "how often no batch was ready": Sick(
            fetched(BUSY, ready_batches=0.26, empty_share=0.95),
            0.5,
            settings=({"num_workers": 4},),
            gain=2.0,
            figures=("95 %", "0.26"),
        ),
    },
    near={
        "enough workers": BUSY.but(wait=0.1, workers=6),
        "two workers compute on two cores": BUSY.but(fetch_cpu=39.0, consumer_cpu=1.0),
        "workers that fetch a tenth of the time": BUSY.but(fetch=4.0),
        "the edge of an epoch": BUSY.but(wait=0.0, edge=200.0, steps_per_epoch=20, fetch=18.0),
    },
)

COMPUTING = Loop(wait=30.0, workers=2, fetch=80.0, fetch_cpu=78.0, consumer_cpu=2.0, cores=2.0)
SMALL_STEP: dict[str, Any] = {"forward": 0.2, "backward": 0.2, "optimizer": 0.1, "batch": 128, "batch_bytes": 1.3e5}
IN_MEMORY = Loop(wait=0.6, collate=0.2, cores=2.0, **SMALL_STEP)
"""128 samples out of memory one by one: 5 us a sample, in a loop of 0.5 ms."""
ROWS = Loop(wait=14.0, forward=1.0, backward=1.2, optimizer=0.5, fetch_cpu=13.8, consumer_cpu=2.7, cores=2.0).but(
    batch=2048, batch_bytes=3.4e5
)
"""2048 rows out of memory one by one, 7 us each: two workers save some of a step, whole batches all of the fetch."""
INSIDE = tuple(
    replace(line(text, share, "data_wait"), in_worker=True, line=number)
    for number, (text, share) in enumerate([("image = decode(path)", 0.6), ("x = augment(image)", 0.3)])
)
BY_BATCHES = {"batch_size": None, "sampler": "BatchSampler", "collate": "default_convert"}
SEEN_BY_BATCHES = replace(line("return self.x[indices]", 0.4, "data_wait"), function="Rows.__getitems__")
ORDERED = {"dataset": "TensorDataset", "sampler": "SequentialSampler", "drop_last": True}
LITTLE = IN_MEMORY.but(wait=0.04, fetch=0.04)

SLOW_GETITEM = CauseLoops(
    "slow-getitem",
    sick={
        "two workers that compute on two cores": Sick(
            COMPUTING.but(lines=INSIDE), 0.75, figures=("40.0 ms", "60 %", "decode(path)", "30 %", "augment(image)")
        ),
        "data in memory": Sick(IN_MEMORY, 0.545, cures=("BatchSampler",)),
        "rows in memory, though workers would help": Sick(ROWS, 14 / 16.7, cures=("BatchSampler",)),
        "data in order are not shuffled by the cure": Sick(
            IN_MEMORY.but(loader=ORDERED),
            0.545,
            cures=("BatchSampler(loader.sampler, batch_size=128, drop_last=True)",),
            unsaid=("__getitem__",),
        ),
        "batches of a batch sampler": Sick(
            IN_MEMORY.but(loader={"batch_size": None, "sampler": "SequentialSampler"}),
            0.545,
            cures=("sampler = loader.batch_sampler\n",),
        ),
        "a stream": Sick(IN_MEMORY.but(loader=STREAM), 0.545, cures=("__iter__",), unsaid=("indices", "ampler")),
        "a stream with workers": Sick(
            COMPUTING.but(loader=STREAM), 0.75, cures=("__iter__",), unsaid=("indices", "ampler")
        ),
        "a stream on one core": Sick(
            Loop(wait=40.0, cores=1.0, loader=STREAM), 0.8, cures=("__iter__",), unsaid=("indices", "ampler")
        ),
        "whole batches requested": Sick(
            IN_MEMORY.but(loader=BY_BATCHES), 0.545, unsaid=("BatchSampler", "__getitems__")
        ),
        "whole batches seen": Sick(IN_MEMORY.but(lines=(SEEN_BY_BATCHES,)), 0.545, unsaid=("BatchSampler",)),
        "workers with time to spare": Sick(Loop(wait=1.5, workers=2, fetch=6.0, cores=4.0), 0.13),
        "a fetch that queues for a core": Sick(
            fetched(COMPUTING.but(fetch_cpu=20.0), queued_s=55e-3), 0.75, figures=("55.0 ms",)
        ),
    },
    near={
        "hidden": COMPUTING.but(wait=0.1, cores=16.0, workers=8),
        "its workers mostly wait": Loop(wait=1.0, edge=60.0, steps_per_epoch=10, workers=2, fetch=2.0, cores=2.0),
        "the fetch waits": SLEEPING,
        "the collate": COMPUTING.but(collate=60.0),
        "one indexing a batch, asked for": LITTLE.but(loader=BY_BATCHES),
        "one indexing a batch, seen": LITTLE.but(lines=(SEEN_BY_BATCHES,)),
    },
    other={
        "a collate of the user's own is not to be lost": (
            ROWS.but(loader={"collate": "my_collate"}),
            ("loader-without-workers",),
        ),
        "0.2 ms a sample are no look-up": (ROWS.but(batch=64), ("loader-without-workers",)),
        "workers with time to spare, below a tenth": (Loop(wait=0.8, workers=2, fetch=6.0, cores=4.0), ()),
    },
)

PADDING = Loop(wait=30.0, workers=2, fetch=80.0, fetch_cpu=78.0, collate=60.0, cores=2.0, loader={"collate": "pad"})
STACKING = Loop(wait=0.6, collate=0.4, cores=2.0, **SMALL_STEP)
SHORT_EPOCHS = Loop(
    wait=1.6,
    edge=50.0,
    steps_per_epoch=10,
    forward=0.6,
    backward=0.9,
    optimizer=0.5,
    workers=1,
    fetch=0.6,
    collate=0.5,
    cores=2.0,
)
"""One worker starts anew every 10 steps: 74 % wait, nearly all of it at the beginning of epochs."""

SLOW_COLLATE = CauseLoops(
    "slow-collate",
    sick={
        "padding in workers": Sick(PADDING, 0.75, figures=("pad", "60.0 ms", "80.0 ms")),
        "samples from memory cost the whole fetch": Sick(STACKING, 0.545, cures=("BatchSampler",)),
        "a stream": Sick(STACKING.but(loader=STREAM), 0.545, cures=("__iter__",), unsaid=("indices", "ampler")),
    },
    near={
        "little": Loop(wait=0.2, collate=0.2),
        "hidden by workers": PADDING.but(wait=0.1),
        "the samples are dearer": PADDING.but(collate=20.0),
        "idle workers": Loop(
            wait=1.2, forward=1.4, backward=2.4, optimizer=0.4, workers=2, fetch=0.5, collate=0.45, cores=2.0
        ),
        "it sleeps, and workers overlap it": Loop(wait=40.0, fetch_cpu=1.0, collate=39.0, consumer_cpu=10.0),
    },
    other={
        "the beginning of epochs": (SHORT_EPOCHS, ("workers-restart-each-epoch", "too-many-workers")),
        "hidden behind workers that pay": (SLEEPING.but(collate=30.0), ("loader-without-workers",)),
    },
)

MANY = Loop(wait=20.0, workers=64, fetch=1500.0, fetch_cpu=2.0, consumer_cpu=10.0, cores=2.0, batch_bytes=20e6)


def reading(loop: Loop, read: float, stored: float | None, queued_ms: float = 0.0, part: float = 1.0) -> Recording:
    """Returns the loop's recording with the bytes that a fetch read, those from storage, and ms queued for a core."""
    recording = loop.recording()
    (fetch,) = recording.fetches
    counted = replace(
        fetch,
        read_bytes=fetch.batches * read,
        stored_bytes=None if stored is None else fetch.batches * stored,
        stored_s=part * fetch.wall_s,
        queued_s=fetch.batches * queued_ms * 1e-3,
    )
    return replace(recording, fetches=(counted,))


SLOW_STORAGE = CauseLoops(
    "slow-storage",
    sick={
        "64 workers that read": Sick(reading(MANY, 20e6, 20e6), 2 / 3, figures=("19 MiB of the 19 MiB",)),
        "mapped files are read without reads": Sick(reading(MANY, 0.0, 20e6), 2 / 3, figures=("19 MiB",)),
    },
    near={
        "a warm page cache": reading(MANY, 20e6, 0.0),
        "a page in 1.5 s: a server, a lock, a sleep": reading(MANY, 4096.0, 4096.0),
        "of ten fetches one reads from it": reading(MANY, 20e6, 20e6, part=0.1),
        "it computes what it reads": reading(MANY.but(fetch_cpu=1400.0), 20e6, 20e6),
        "it queues for a core": reading(MANY, 20e6, 20e6, queued_ms=1400.0),
        "nobody waits": reading(BUSY.but(wait=0.1, workers=8), 3e6, 3e6),
        "it was not counted": reading(MANY, 20e6, None),
    },
)

UNEVEN = Loop(wait=4.0, workers=2, fetch_cpu=1.0, fetch_walls=[3.0] * 58 + [200.0] * 2, consumer_cpu=10.0)
"""9.6 ms on average, 6.6 more than the usual fetch."""
COLD = [0.3] * 56 + [30.0] * 4
"""Each fifteenth batch comes from a shard that is not cached: 2.28 ms on average, 1.98 of them beyond the usual."""
ALONE = Loop(wait=2.4, forward=0.5, backward=0.6, optimizer=0.2, workers=0, fetch_cpu=0.25, fetch_walls=COLD)

UNEVEN_BATCHES = CauseLoops(
    "uneven-batches",
    sick={
        # 200 ms and half as much again, at 2 workers and 10 ms a step: some 15 ahead in each
        "two of sixty are slow": Sick(UNEVEN, 4 / 14, settings=({"prefetch_factor": 16},), unsaid=("ready",)),
        "without workers the loop waits for a cold shard": Sick(ALONE, 2.4 / 3.7),
        "no stock that would not fit": Sick(UNEVEN.but(batch_bytes=1.5e9), 4 / 14),
        "how often no batch was ready": Sick(
            fetched(UNEVEN, ready_batches=2.0, empty_share=0.08),
            4 / 14,
            settings=({"prefetch_factor": 16},),
            figures=("8 %", "2 on average"),
        ),
    },
    near={
        "hidden": UNEVEN.but(wait=0.1),
        "even": UNEVEN.but(fetch_walls=[9.0] * 60),
        "slow batches compute: the work stays": ALONE.but(fetch_cpu=2.2),
        "the edge of epochs": UNEVEN.but(wait=0.1, edge=100.0, steps_per_epoch=20),
        "they queued for a core": fetched(UNEVEN, queued_s=6e-3),
        "29 ms for 10 ms of training: no stock builds up": UNEVEN.but(fetch_walls=[15.0] * 50 + [100.0] * 10),
    },
)

LOCKED = Loop(wait=20.0, workers=2, fetch=60.0, cores=4.0, **FED)
"""Two workers under a lock that a batch needs for 30 ms."""

WITHOUT = LOCKED.but(workers=0, wait=30.0, fetch=30.0)
FOUR = LOCKED.but(workers=4, fetch=120.0)

WORKERS_WAIT = CauseLoops(
    "workers-wait-for-each-other",
    sick={
        "beside a run without workers": Sick((LOCKED, WITHOUT), 20 / 30, figures=("num_workers=0",)),
        "beside a run of fewer workers": Sick((FOUR, LOCKED), 20 / 30, figures=("num_workers=2",)),
        "beside a run of more workers": Sick((LOCKED, FOUR), 20 / 30, figures=("num_workers=4",)),
        "without workers, beside a run of two": Sick((WITHOUT, LOCKED), 30 / 40, figures=("num_workers=2",)),
    },
    near={"they queue for a core": (LOCKED.but(fetch_cpu=58.0, cores=2.0), WITHOUT.but(fetch_cpu=29.0))},
    other={
        "one run cannot tell it from a slow server": (LOCKED, ("too-few-workers",)),
        "a fetch takes as long with four": ((LOCKED, LOCKED.but(workers=4, wait=5.0)), ("too-few-workers",)),
        "hardly longer": ((LOCKED, WITHOUT.but(wait=52.0, fetch=52.0)), ("too-few-workers",)),
        "another fetch": ((LOCKED, WITHOUT.but(settings={"batch_size": 16})), ("too-few-workers",)),
        "the same number": ((LOCKED, LOCKED), ("too-few-workers",)),
    },
)

# ---- workers and epochs ----------------------------------------------------------------------------------------------

HANDED = Loop(
    steps=600, wait=3.6, workers=4, fetch=0.84, forward=0.5, backward=0.6, optimizer=0.4, cores=2.0, consumer_cpu=2.7
)
"""As recorded: four workers hand over rows of a tensor in memory. By itself the loop fetches in 0.58 ms and trains in
1.22: its caches are warm then."""
OUTNUMBERING = Loop(wait=6.0, workers=8, fetch=75.0, fetch_cpu=12.0, consumer_cpu=12.0, cores=2.0).but(
    forward=5.0, backward=5.0, optimizer=2.0
)
"""Two cores give 12 + 12 ms of CPU in 12 ms; yet a step takes 18."""

TOO_MANY_WORKERS = CauseLoops(
    "too-many-workers",
    sick={
        "rows are fetched sooner than handed over": Sick(
            HANDED, 3.6 / 5.1, settings=({"num_workers": 0},), gain=5.1 / (1.22 + 0.58)
        ),
        "workers that outnumber the cores": Sick(
            fetched(OUTNUMBERING, queued_s=60e-3),
            6 / 18,
            settings=({"num_workers": 2},),
            gain=1.3,
            figures=("60.0 ms",),
        ),
    },
    near={
        "no more than cores": fetched(OUTNUMBERING.but(workers=2, fetch=25.0), queued_s=10e-3),
        "it waits for the network or a lock": fetched(OUTNUMBERING, queued_s=1e-3),
        "nobody waits for them": fetched(OUTNUMBERING.but(wait=0.6), queued_s=60e-3),
        "idle": Loop(workers=8, fetch=12.0, fetch_cpu=12.0, wait=0.5, forward=20.0, backward=20.0, cores=2.0),
        "a batch that is slow to come": HANDED.but(wait=12.0, workers=1, fetch=9.0),
        "without them a step would be longer": HANDED.but(fetch=4.6),
    },
    other={
        # taking a batch costs 0.04 ms; the rest of the wait is what four processes take to start, every 20 steps
        "starting anew each epoch": (
            HANDED.but(wait=0.04, edge=66.0, steps_per_epoch=20),
            ("workers-restart-each-epoch",),
        )
    },
)

SHORT = Loop(workers=2, fetch=5.0, fetch_cpu=4.0, edge=100.0, steps_per_epoch=20)
"""4 edges of 100 ms in 99 steps of 10 ms."""
PERSISTENT = {"persistent_workers": True}
VAL = "Images[1000] batch 32 SequentialSampler #0"
BOTH = SHORT.but(evaluation=5.0)
"""A pass of 100 ms after each 20 steps, here laid over all of them alike."""
ONE_EPOCH = Loop(workers=2, fetch=5.0, fetch_cpu=4.0, evaluation=5.0)
TIMED = {"starts": 5, "start_s": 0.25, "first_s": 0.2, "ends": 4, "end_s": 0.02}
RUN_MS = 1885 + 3 * 115
"""Of BOTH: 99 steps of 15 ms, 4 edges of 100, and a first step that takes three times as long."""


def evaluating(loop: Loop, edge_ms: float = 80.0, passes: int = 5, persistent: bool = False) -> Loop:
    """Returns the loop with passes over a loader of 10 batches, whose begin takes so many milliseconds."""
    recording = loop.recording()
    loader = LoaderSetup(VAL, role="evaluation", num_workers=2, batches=10, persistent_workers=persistent)
    fetch = Fetch(VAL, 2, 10 * passes, 10 * passes * 3e-3, 10 * passes * 2e-3, 0.0, 1e5, np.empty(0))
    facts = EvaluationFacts(forwards=10 * passes, edge_s=passes * edge_ms * 1e-3)
    setup = replace(recording.setup, loaders=(*recording.setup.loaders, loader), evaluation=facts)
    return with_more(loop, setup=setup, fetches=(*recording.fetches, fetch))


def started(**counted: float) -> Recording:
    """Returns the recording of SHORT whose workers' starts and ends were timed."""
    recording = SHORT.recording()
    return replace(recording, fetches=(replace(recording.fetches[0], **{**TIMED, **counted}),))  # type: ignore[arg-type]


WORKERS_RESTART = CauseLoops(
    "workers-restart-each-epoch",
    sick={
        # 5 ms of each edge for the first batch
        "short epochs": Sick(
            SHORT, 4 * 95 / (400 + 990), settings=(PERSISTENT,), gain=1 / (1 - 4 * 95 / 1390), unsaid=("50.0 ms",)
        ),
        "a loader that cannot keep them": Sick(
            SHORT.but(loader={"refusals": {"persistent_workers": "the iterator is there already"}}),
            4 * 95 / 1390,
            gain=1.38,
        ),
        "evaluation passes start workers too": Sick(
            evaluating(BOTH),
            4 * 95 / 1885 + 4 * (80 - 3) / RUN_MS,
            within=0.005,
            named=("workers-restart-each-epoch", "heavy-evaluation"),
            settings=(PERSISTENT,),
            gain=1 / (1 - 4 * 95 / 1885),
            figures=("5 evaluation passes",),
        ),
        "one epoch with many evaluations": Sick(
            evaluating(ONE_EPOCH), 4 * (80 - 3) / (102 * 15), named=("workers-restart-each-epoch", "heavy-evaluation")
        ),
        "tiny fetches are better done by the loop itself": Sick(
            SHORT.but(fetch=0.2, fetch_cpu=0.2, wait=1.0),
            4 * 100 / (400 + 99 * 11),
            named=("workers-restart-each-epoch", "too-many-workers"),
            settings=({"num_workers": 0}, PERSISTENT),
            gain=(11 + 4 * 100 / 99) / 10.2,
        ),
        "what an edge is made of": Sick(
            started(), 4 * 95 / 1390, settings=(PERSISTENT,), gain=1.38, figures=("50.0 ms", "40.0 ms", "5.00 ms")
        ),
        "workers whose end was not timed": Sick(
            started(ends=0, end_s=0.0),
            4 * 95 / 1390,
            settings=(PERSISTENT,),
            gain=1.38,
            figures=("50.0 ms", "40.0 ms"),
            unsaid=("ending",),
        ),
    },
    near={
        "they stay": SHORT.but(loader=PERSISTENT),
        "one epoch": SHORT.but(steps_per_epoch=1000),
        "a slow first batch would be paid anyway": SHORT.but(fetch=95.0),
        "no workers to keep": SHORT.but(workers=0),
        "evaluation workers that stay": evaluating(ONE_EPOCH, persistent=True),
        "evaluation that waits for its batch alone": evaluating(ONE_EPOCH, edge_ms=4.0),
        "one pass of evaluation": evaluating(ONE_EPOCH, passes=1),
        "not measured is no edge": ONE_EPOCH,
    },
)

MILLIONS = {"sampler": "RandomSampler", "dataset_len": 2_000_000}
SHUFFLING = Loop(wait=0.5, edge=100.0, steps_per_epoch=20, loader=MILLIONS)
"""4 edges of 100 ms in 99 steps of 10.5 ms."""
SHUFFLES = 4 * 100 / (400 + 99 * 10.5)
ENDLESS = {"sampler": "_InfiniteConstantSampler", "dataset_kind": "iterable", "dataset_len": None}

SLOW_EPOCH_START = CauseLoops(
    "slow-epoch-start",
    sick={
        "millions are shuffled": Sick(SHUFFLING, SHUFFLES, figures=("RandomSampler",), cures=("replacement=True",)),
        "workers that stay do not explain it": Sick(
            SHUFFLING.but(workers=2, fetch=1.0, loader={**MILLIONS, **PERSISTENT}),
            SHUFFLES,
            cures=("replacement=True",),
        ),
        "a stream": Sick(SHUFFLING.but(loader=ENDLESS), SHUFFLES, cures=("iter(loader)",), unsaid=("Infinite",)),
        **{
            f"no other draw than {sampler}": Sick(
                SHUFFLING.but(loader={"sampler": sampler, "dataset_len": 640}), SHUFFLES, unsaid=("replacement",)
            )
            for sampler in ("WeightedRandomSampler", "DistributedSampler", "Buckets")
        },
    },
    near={
        "one epoch": SHUFFLING.but(steps_per_epoch=1000),
        "a short edge": SHUFFLING.but(edge=1.0),
        "workers that start anew": SHUFFLING.but(workers=2, fetch=1.0),
        "a slow first batch has to be fetched anyway": SHUFFLING.but(wait=95.0, fetch=98.0),
        "a stream's last batch, not full and dropped": SHUFFLING.but(loader=ENDLESS, wait=48.0, fetch=48.0, edge=60.0),
    },
)

# ---- what workers cannot do ------------------------------------------------------------------------------------------

NOT_SENT = f"{CANNOT}spawn, but dataset is defined in the notebook."
SPAWN: dict[str, Any] = {"start_method": "spawn", "refusals": {"num_workers": NOT_SENT}, "batches": 1000}
SPAWNING = Loop(wait=20.0, fetch_cpu=1.0, loader=SPAWN)
EXITED = "RuntimeError: DataLoader worker (pid(s) 23876) exited unexpectedly"
PICKLE = "TypeError: cannot pickle 'module' object"


def failed(reason: str, **loader: Any) -> Loop:
    """Returns a loop that ended before its first batch."""
    known = {"key": KEY, "role": "unknown", "num_workers": 2, "start_method": "spawn", "dataset": "Rows", **loader}
    return with_more(Loop(steps=0), outcome="failed", reason=reason, setup=Setup(loaders=(LoaderSetup(**known),)))


WORKERS_CANNOT_START = CauseLoops(
    "workers-cannot-start",
    risk=True,
    sick={
        "a dataset of the notebook": Sick(
            SPAWNING, 2 / 3, risk=False, gain=2.5, cures=("%%writefile",), figures=(NOT_SENT,)
        ),
        "one worker would do": Sick(SPAWNING.but(forward=60.0), 20 / 86, risk=False, gain=1.3, figures=("1 worker ",)),
        **{
            reason: Sick(failed(reason), figures=(reason,), cures=("%%writefile",))
            for reason in (
                "AttributeError: Can't pickle local object 'local.<locals>.Rows'",
                "PicklingError: Can't pickle <function <lambda> at 0x7f9e>: attribute lookup on __main__ failed",
                "TypeError: cannot pickle '_io.TextIOWrapper' object",
                "AttributeError: Can't get attribute 'Rows' on <module '__main__' (built-in)>",
            )
        },
        "gone at once where they could not start": Sick(
            failed(EXITED, refusals={"num_workers": NOT_SENT}), figures=(EXITED,)
        ),
    },
    near={
        "it can": SPAWNING.but(loader={}),
        "nobody waits": SPAWNING.but(wait=0.1),
        "data in memory needs no workers": Loop(wait=1.0, fetch_cpu=1.0, loader=SPAWN),
        "killed for another reason": failed(EXITED),
        "a failure of the user's own": failed("ValueError: no"),
        "no workers": failed(PICKLE, num_workers=0),
        "forked workers are sent nothing": failed(PICKLE, start_method="fork"),
        "after the first step torch.save may pickle": with_more(
            Loop(workers=2, loader={"start_method": "spawn"}), outcome="failed", reason=PICKLE
        ),
    },
    other={
        "another refusal": (
            SPAWNING.but(loader={"refusals": {"num_workers": "The dataset holds tensors on the GPU."}}),
            ("loader-without-workers",),
        )
    },
)

DOCKER = {"world": World(shm_free_bytes=64e6)}
TIGHT = Loop(workers=8, fetch=4.0, batch_bytes=10e6, setup=DOCKER)
"""8 workers x 2 ahead x 10 MB = 160 MB in docker's 64 MB."""
NO_ROOM = (
    "RuntimeError: unable to write to file </torch_4012_1718_3>: No space left on device (28)",
    "RuntimeError: unable to allocate shared memory(shm) for file </torch_74_32_0>: No space left on device (28) "
    "(in a DataLoader worker)",
    "RuntimeError: DataLoader worker (pid 12) is killed by signal: Bus error. It is possible that dataloader's "
    "workers are out of shared memory. Please try to raise your shared memory limit.",
)

SMALL_SHARED_MEMORY = CauseLoops(
    "small-shared-memory",
    risk=True,
    bottleneck="compute",
    sick={
        "docker's 64 MB": Sick(TIGHT, settings=({"num_workers": 3},), cures=("--shm-size",), figures=("153 MiB",)),
        **{reason[:60]: Sick(failed(reason), figures=(reason,)) for reason in NO_ROOM},
    },
    near={
        "room": TIGHT.but(setup={"world": World(shm_free_bytes=8e9)}),
        "small batches": TIGHT.but(batch_bytes=1e6),
        "no workers": TIGHT.but(workers=0, wait=4.0),
        "no such memory": TIGHT.but(setup={"world": World()}),
        "not read": TIGHT.but(setup={}),
        "a failure without workers": failed(NO_ROOM[0], num_workers=0),
        "another failure": failed("RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
    },
)

ALL_TO_ALL: dict[str, Any] = {
    "dataset": "Stream",
    "dataset_kind": "iterable",
    "dataset_len": None,
    "batches": None,
    "refusals": {"num_workers": f"Stream has no get_worker_info: {REPEATS}."},
}
COPIES = Loop(workers=4, fetch=8.0, loader=ALL_TO_ALL)

ITERABLE_DUPLICATED = CauseLoops(
    "iterable-duplicated",
    first=True,
    bottleneck="compute",
    sick={
        "four workers": Sick(COPIES, 0.75, cures=("get_worker_info",)),
        "before how fast it is": Sick(COPIES.but(wait=90.0), 0.75, named=("iterable-duplicated", "slow-getitem")),
        # nothing was read off its code, but an epoch holds everything four times
        "an epoch of several lengths convicts it": Sick(
            COPIES.but(loader={**ALL_TO_ALL, "dataset_len": 160, "refusals": {}}, steps_per_epoch=20),
            0.75,
            figures=("640 samples",),
        ),
        # each batch costs more to take than to fetch: without workers the loop would be faster
        "before what it costs to hand them over": Sick(
            COPIES.but(workers=2, fetch=0.8, wait=5.0, steps=600), 0.5, named=("iterable-duplicated", "slow-getitem")
        ),
    },
    near={
        "a stream that shares out": COPIES.but(loader={**ALL_TO_ALL, "refusals": {}}),
        "one worker": COPIES.but(workers=1),
        "no worker": COPIES.but(workers=0, wait=1.0),
        "a map-style dataset": COPIES.but(loader={"refusals": ALL_TO_ALL["refusals"]}),
        # 20 steps of 32 make an epoch, as long as the dataset says it is
        "an epoch of the right length": COPIES.but(loader={**ALL_TO_ALL, "dataset_len": 640}, steps_per_epoch=20),
    },
)

CAUSES = (
    LOADER_WITHOUT_WORKERS,
    TOO_FEW_WORKERS,
    SLOW_GETITEM,
    SLOW_COLLATE,
    SLOW_STORAGE,
    UNEVEN_BATCHES,
    WORKERS_WAIT,
    TOO_MANY_WORKERS,
    WORKERS_RESTART,
    SLOW_EPOCH_START,
    WORKERS_CANNOT_START,
    SMALL_SHARED_MEMORY,
    ITERABLE_DUPLICATED,
)
