"""Rule for a loop, or a GPU, that waits for batches within an epoch; what takes most of a fetch decides the cause.

The price is the exposed wait, which was measured, whatever a cure saves of it. Other rules judge waits at the start of
epochs (`epoch_edges`), too many workers (`too_many_workers`) and workers that cannot start (`workers_cannot_start`).
"""

from __future__ import annotations

import math
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.prediction import Forecast
from gpu_doctor.diagnosis.forecast.stages import fetched_s
from gpu_doctor.diagnosis.rules.evidence import fetch_lines, gpu_or_loop, stock_line
from gpu_doctor.diagnosis.rules.prescriptions import (
    BUSY_SHARE,
    CANNOT,
    INDEXED,
    ONE_CALL,
    cheaper_samples,
    more_workers,
    on_loader,
    surplus_workers,
    whole_batches,
    with_workers,
)
from gpu_doctor.diagnosis.rules.rule import NAMING_BAR, Cause, Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.distributed import PREFETCH
from gpu_doctor.diagnosis.vitals.fetching import contending_runs, slow_part_s, stored_s
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.recording import LoaderSetup

NEEDS: Final = ("loader", "workers", "exposed_wait_share", "fetch_wall_s", "step_wall_s", "batches_per_step")
CAUSES: Final = (
    Cause(
        "loader-without-workers",
        """
        The loader has no worker processes, so the training loop fetches every batch itself.

        What it means
            With `num_workers=0` the training thread also fetches the samples. The model does not train while a batch is
            fetched, and no batch is fetched while the model trains.

        Why it costs you
            Each step takes as long as the fetch and the training together. Worker processes fetch the next batches
            while the model trains on this one, so a step takes only as long as the slower of the two. The cost is the
            wait that was measured.

        What to try
            Use the number of workers that the forecast gives, and run a trial. A dataset that waits for a disk or a
            network gains from more workers than there are cores. A dataset that computes gains up to the number of
            cores.

        In code
            # sick
            loader = DataLoader(dataset, batch_size=64)
            # cured
            loader = DataLoader(dataset, batch_size=64, num_workers=4, persistent_workers=True)

        When to leave it
            Leave it if the dataset computes and the process may use only one core. If the dataset cannot be sent to
            worker processes, the panel says why.
        """,
        NEEDS,
    ),
    Cause(
        "too-few-workers",
        """
        The loader's workers are always busy, and the loop still waits for them.

        What it means
            The workers fetch without a break, but the loop trains on batches faster than they arrive.

        Why it costs you
            The device has nothing to do while the loop waits. The cost is the wait that was measured.

        What to try
            Use as many workers as the forecast gives, and run a trial. A dataset that waits for a disk or a network
            gains from more workers than there are cores.

        In code
            # sick
            loader = DataLoader(dataset, batch_size=64, num_workers=1)
            # cured
            loader = DataLoader(dataset, batch_size=64, num_workers=6, persistent_workers=True)

        When to leave it
            If the fetch computes and all cores are in use, make the fetch cheaper instead (slow-getitem). Shard an
            IterableDataset by worker first, or every worker delivers all items. If workers share a lock or a rate
            limit, more of them gain nothing: a trial shows that, one run cannot (workers-wait-for-each-other).
        """,
        NEEDS,
    ),
    Cause(
        "slow-getitem",
        """
        Fetching a batch takes long, and more workers would not shorten the wait.

        What it means
            Either `__getitem__` needs more CPU time than the usable cores have, or the data is in memory and Python
            takes the samples out one by one although one indexing could return a whole batch.

        Why it costs you
            The device waits for the fetch in every step. More workers would compete for the same cores, or would spend
            more time on handing batches over than they save. The cost is the wait that was measured.

        What to try
            Do less work per sample. Decode and resize once and store the result, decode JPEGs at a smaller size, cache
            what fits into memory, process the whole batch at once in `__getitems__`, or move augmentation to the GPU.
            If the data is in memory, index whole batches. Start with the lines that the evidence names: they are the
            slowest of the fetch.

        In code
            # sick
            loader = DataLoader(TensorDataset(x, y), batch_size=256, shuffle=True)
            # cured
            sampler = BatchSampler(RandomSampler(dataset), batch_size=256, drop_last=False)
            loader = DataLoader(dataset, batch_size=None, sampler=sampler)  # one indexing per batch

        When to leave it
            Leave it if a machine with more cores is cheaper than changing the dataset.
        """,
        NEEDS,
    ),
    Cause(
        "slow-collate",
        """
        Collating samples into a batch takes at least half of the fetch.

        What it means
            Most of a fetch is spent in `collate_fn`, which pads, stacks or tokenises a whole batch. Reading the samples
            takes less.

        Why it costs you
            `collate_fn` runs once per batch in the process that fetches, and the loop waits for it. The cost is the
            wait that was measured.

        What to try
            Vectorise `collate_fn`, allocate the batch once and fill it, or tokenise the data before training. If
            torch's default collate stacks samples that are already in memory, index whole batches instead: use a
            BatchSampler with `batch_size=None`. If `collate_fn` comes from a package, such as a tokenizer's, prepare
            the samples so that it has less to do.

        In code
            # sick
            def collate(texts):
                return tokenizer(texts, padding=True, return_tensors="pt")
            # cured
            tokens = [torch.tensor(ids) for ids in tokenizer(texts)["input_ids"]]  # once
            def collate(samples):
                return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)

        When to leave it
            Leave it if workers hide it: the loop does not wait then, and this cause is not reported.
        """,
        (*NEEDS, "collate_s"),
    ),
    Cause(
        "slow-storage",
        """
        The fetch waits for a disk or a network drive.

        What it means
            A fetch takes far longer than it computes, and its bytes come from the storage. The files are not in the
            page cache, so every read waits for a disk or a network drive.

        Why it costs you
            A cold read waits for the storage however small the sample is. A process that reads one file after the other
            spends most of its time waiting. The cost is the wait that was measured.

        What to try
            Copy the data to a local disk once, or pack many samples into few large files (shards, a memory-mapped
            array, a database) and read them in order. More workers help only as long as the forecast gives a gain: then
            they wait at the same time. Data that fits into memory is fast from the second epoch on without any change.

        In code
            # sick
            image = np.load(f"/mnt/nfs/images/{i}.npy")  # in __getitem__: one small file per sample
            # cured
            images = np.load("/local/images.npy", mmap_mode="r")  # in __init__: one large file
            image = images[i]  # in __getitem__

        When to leave it
            Leave it in the first epoch if the data fits into memory: the next epoch reads from the page cache. If the
            storage is at its limit (the evidence gives its bandwidth), more workers only share it.
        """,
        (*NEEDS, "fetch_cpu_s", "fetch_stored_bytes"),
    ),
    Cause(
        "uneven-batches",
        """
        A few batches take far longer to fetch than the rest, and the loop waits for each of them.

        What it means
            Most batches come quickly, but some take many times as long: a cold file, a new shard, a slow server.
            Workers deliver batches in order, so all of them wait for the slow one. Without workers the loop itself
            waits for it.

        Why it costs you
            Once the prefetched batches are used up, the model trains on nothing until the slow batch is there, although
            the workers may have time to spare. The cost is the wait that was measured.

        What to try
            Raise `prefetch_factor`, so that the prefetched batches last as long as a slow one takes. Find out what
            makes those batches slow. Copy the next shard to a local disk before its first batch is due.

        In code
            # sick
            loader = DataLoader(dataset, batch_size=64, num_workers=4)  # prefetch_factor=2
            # cured
            loader = DataLoader(dataset, batch_size=64, num_workers=4, prefetch_factor=8)

        When to leave it
            Leave it if memory is short: every prefetched batch takes memory. If the slow fetches compute or wait for a
            core, prefetching does not help (slow-getitem).
        """,
        (*NEEDS, "fetch_median_s", "fetch_p99_s", "consumer_s"),
    ),
    Cause(
        "workers-wait-for-each-other",
        """
        The workers wait for each other: with more workers each fetch takes longer, and no more batches arrive.

        What it means
            The fetch uses something that serves one worker at a time: a lock, a shared connection or file handle, a
            server's rate limit. Two runs with different numbers of workers show it, because the time of a fetch grows
            with their number. One run alone cannot tell this from a slow server.

        Why it costs you
            Batches arrive no faster, however many workers there are, and each worker still takes memory and time to
            start. The cost is the wait that was measured.

        What to try
            Open a file or connection of its own in each worker, in `worker_init_fn` or at the first `__getitem__`. Hold
            the lock only while reading, and decode after releasing it. Request many samples at once, raise the rate
            limit, or copy the data to a local disk.

        In code
            # sick
            with shared_lock:
                image = decode(archive.read(name))
            # cured
            if self.archive is None:  # in __getitem__: each worker opens its own
                self.archive = zipfile.ZipFile(self.path)
            image = decode(self.archive.read(name))

        When to leave it
            If the limit is a quota that you cannot raise, use the fewest workers that reach it.
        """,
        (*NEEDS, "fetch_cpu_s"),
    ),
)

NEVER_SILENT: Final = 0.10
"""Share of the wall-clock from which on a wait is reported, whether or not something would shorten it."""
COLLATE_SHARE: Final = 0.5
"""Part of the fetch from which on collating is the cause; below it, the samples cost more than collating them."""
CHEAP_SAMPLE_S: Final = 1e-4
"""Seconds up to which a sample is a look-up in memory, not decoding or computing."""
CHEAPER: Final = 2.0
"""Whole batches are advised first if a step with workers would take at least this many times as long."""
SPARE: Final = 0.95
"""Part of the time; workers that fetch for less build up a stock of batches between slow ones."""
MARGIN: Final = 1.5
"""Factor on the time of a slow batch that the prefetched batches should last."""
PREFETCH_MOST: Final = 32
"""Largest `prefetch_factor` to advise: a larger one costs memory and delays the run's end more than it saves."""
STOCK_BYTES: Final = 4e9
"""Most bytes of prefetched batches to advise."""

SHARDS: Final = Prescription(
    text="Copy the data to a local disk, or pack many samples into few large files",
    safety=Safety.BY_HAND,
    code="shutil.copytree(network_folder, local_folder)  # once, before the loop\n"
    "numpy.save('images.npy', images); images = numpy.load('images.npy', mmap_mode='r')  # one large file",
)
SAME_SPEED: Final = Prescription(
    text="Cache the slow samples, and copy the next shard to a local disk before its first batch is due",
    safety=Safety.BY_HAND,
)
WHOLE_ITEMS: Final = Prescription(text="Let the dataset return whole batches", safety=Safety.BY_HAND, code=ONE_CALL)
CHEAPER_COLLATE: Final = Prescription(
    text="Vectorise collate_fn; if it belongs to a package, tokenise or convert the data once, before training",
    safety=Safety.BY_HAND,
    code="def collate_fn(samples): ...  # allocate the batch once, fill it with array operations",
)
OWN_HANDLE: Final = Prescription(
    text="Let each worker open its own file or connection, and hold no lock while it decodes",
    safety=Safety.BY_HAND,
    code="def open_own(worker):  # in each worker, instead of one handle that all share\n"
    "    torch.utils.data.get_worker_info().dataset.file = open(path, 'rb')\n"
    "loader = DataLoader(..., worker_init_fn=open_own)",
)


def check(vitals: Vitals) -> Finding | None:
    """Reports an exposed wait for batches within epochs, unless it belongs to another rule or cannot be shortened."""
    loader, wait, wall = vitals.loader, vitals.steady_wait_share, vitals.fetch_wall_s
    if loader is None or vitals.workers is None or not wall or not vitals.step_wall_s or wait < NAMING_BAR:
        return None
    best = more_workers(vitals)
    if best is not None and loader.refusals.get("num_workers", "").startswith(CANNOT):
        return None  # workers-cannot-start
    if surplus_workers(vitals) is not None:
        return None  # too-many-workers
    return _without_workers(vitals, loader, best) if vitals.workers == 0 else _with_workers(vitals, loader, best)


def _without_workers(vitals: Vitals, loader: LoaderSetup, best: tuple[int, Forecast] | None) -> Finding | None:
    """Decides the cause in a loop that fetches its batches itself.

    Args:
        vitals: vitals of the run.
        loader: the training loader.
        best: best number of workers and its forecast; None if no workers pay.
    """
    if slow_part_s(vitals):
        return _uneven(vitals, loader)
    if _looks_up(vitals, loader) and (best is None or _whole_first(vitals, loader, best[1])):
        return _collating(vitals, loader) if _collates(vitals) else _fetching(vitals, loader)
    if best is not None:
        return _workers(vitals, loader, *best)
    if _whole_already(vitals, loader) and vitals.steady_wait_share < NEVER_SILENT:
        return None  # one indexing per batch: nothing is cheaper
    return _by_fetch(vitals, loader)


def _with_workers(vitals: Vitals, loader: LoaderSetup, best: tuple[int, Forecast] | None) -> Finding | None:
    """Decides the cause in a loop that has workers; the arguments are those of `_without_workers`."""
    busy = fetched_s(vitals) / (vitals.step_wall_s or 1.0)
    if slow_part_s(vitals) and busy < SPARE:
        return _uneven(vitals, loader)
    if busy < BUSY_SHARE:  # the workers have time to spare: something else holds the batches up
        return _fetching(vitals, loader) if vitals.steady_wait_share >= NEVER_SILENT else None
    if best is not None:
        return _workers(vitals, loader, *best)
    return _by_fetch(vitals, loader)


def _by_fetch(vitals: Vitals, loader: LoaderSetup) -> Finding:
    """Decides the cause by what takes most of a fetch, if more workers would not shorten the wait."""
    waiting = _contending(vitals)
    if waiting is not None:
        return waiting
    if stored_s(vitals):
        return _storage(vitals)
    return _collating(vitals, loader) if _collates(vitals) else _fetching(vitals, loader)


def _waits(vitals: Vitals) -> str:
    """Returns the start of a headline: who waits for data, and for what part of the time."""
    return f"The {gpu_or_loop(vitals)} waits for data {formatting.share(vitals.steady_wait_share)} of the time"


def _workers(vitals: Vitals, loader: LoaderSetup, count: int, prediction: Forecast) -> Finding:
    """Builds the finding that more workers would pay: loader-without-workers or too-few-workers."""
    now = vitals.workers or 0
    few = f"{formatting.count(now, 'worker')} cannot keep up."
    own_s = (vitals.consumer_s or 0.0) / (vitals.batches_per_step or 1.0)
    return Finding(
        rule="too-few-workers" if now else "loader-without-workers",
        headline=f"{_waits(vitals)}: {few if now else 'num_workers=0 loads each batch between two steps.'}",
        cost_share=vitals.steady_wait_share,
        evidence=(
            f"{_fetch_parts(vitals)}; {'training' if vitals.backward_share else 'computing'} on it takes "
            f"{formatting.seconds(own_s)}",
            f"with {formatting.count(count, 'worker')} a step would take {formatting.seconds(prediction.step_s)}, "
            f"limited by {prediction.why}",
            *_shared_evidence(vitals),
        ),
        prescriptions=(
            with_workers(loader, count, prediction),
            *((SHARDS,) if stored_s(vitals) else ()),
            *((whole_batches(loader),) if _looks_up(vitals, loader) else ()),
        ),
    )


def _fetching(vitals: Vitals, loader: LoaderSetup) -> Finding:
    """Builds the finding that the fetch itself takes long: slow-getitem."""
    cheap, whole = _looks_up(vitals, loader), _whole_already(vitals, loader)
    idle = vitals.workers and fetched_s(vitals) < BUSY_SHARE * (vitals.step_wall_s or 0.0)
    why = "though its workers have time to spare" if idle else "and more workers would not help"
    if not vitals.workers:
        why = "and whole batches would save more than workers" if cheap else "and workers would not help"
    a_sample = "" if whole else " sample by sample"
    fetches = f"Fetching{a_sample} takes {formatting.share(vitals.steady_wait_share)} of the time"
    return Finding(
        rule="slow-getitem",
        headline=f"{_waits(vitals) if vitals.workers else fetches}, {why}.",
        cost_share=vitals.steady_wait_share,
        evidence=(_fetch_parts(vitals), *_on_cores(vitals), *_shared_evidence(vitals)),
        prescriptions=(whole_batches(loader) if cheap else cheaper_samples(loader),),
    )


def _collating(vitals: Vitals, loader: LoaderSetup) -> Finding:
    """Builds the finding that collating is at least half of the fetch: slow-collate."""
    cheap = _looks_up(vitals, loader)
    collate_s = min(vitals.collate_s or 0.0, vitals.fetch_wall_s or 0.0)
    cpu = "" if vitals.collate_cpu_s is None else f", {formatting.seconds(vitals.collate_cpu_s)} of it CPU time"
    cures = (whole_batches(loader), *((WHOLE_ITEMS,) if loader.dataset_kind != "iterable" else ()))
    return Finding(
        rule="slow-collate",
        headline=f"{_waits(vitals)}: collating takes most of each fetch ({loader.collate}).",
        cost_share=vitals.steady_wait_share,
        evidence=(
            f"collating takes {formatting.seconds(collate_s)} of the {formatting.seconds(vitals.fetch_wall_s or 0.0)} "
            f"of a fetch{cpu}",
            *_shared_evidence(vitals),
        ),
        prescriptions=cures if cheap else (CHEAPER_COLLATE,),
    )


def _storage(vitals: Vitals) -> Finding:
    """Builds the finding that the fetch waits for a disk or a network drive: slow-storage."""
    return Finding(
        rule="slow-storage",
        headline=f"{_waits(vitals)}: the storage is too slow.",
        cost_share=vitals.steady_wait_share,
        evidence=(_fetch_parts(vitals), *_shared_evidence(vitals)),
        prescriptions=(SHARDS,),
    )


def _uneven(vitals: Vitals, loader: LoaderSetup) -> Finding:
    """Builds the finding that the loop waits for a few slow batches: uneven-batches."""
    slow_s, median_s, ahead = vitals.fetch_p99_s or 0.0, vitals.fetch_median_s or 0.0, _ahead(loader)
    fetchers = (vitals.workers or 0) * (vitals.loaders_at_once or 1.0)
    stock_s = ahead * fetchers * (vitals.consumer_s or 0.0) / (vitals.batches_per_step or 1.0)
    further = _further(vitals, loader, fetchers) if fetchers else None
    return Finding(
        rule="uneven-batches",
        headline=f"A few slow batches make the {gpu_or_loop(vitals)} wait {formatting.share(vitals.steady_wait_share)} "
        "of the time.",
        cost_share=vitals.steady_wait_share,
        evidence=(
            f"a fetch takes {formatting.seconds(median_s)} for most batches, {formatting.seconds(slow_s)} for the "
            "slowest 1 %",
            f"prefetch_factor={ahead}: the prefetched batches last {formatting.seconds(stock_s)}"
            if fetchers
            else "num_workers=0: no batch is prefetched",
            *_shared_evidence(vitals),
        ),
        prescriptions=(*((further,) if further else ()), SAME_SPEED, *((SHARDS,) if stored_s(vitals) else ())),
    )


def _contending(vitals: Vitals) -> Finding | None:
    """Builds the finding that workers wait for each other; None unless two runs show it."""
    runs = contending_runs(vitals)
    if runs is None:
        return None
    few, few_s, many, many_s = runs
    return Finding(
        rule="workers-wait-for-each-other",
        headline=f"{_waits(vitals)}: its workers wait for each other.",
        cost_share=vitals.steady_wait_share,
        evidence=(
            f"a fetch takes {formatting.seconds(few_s)} with num_workers={few}, {formatting.seconds(many_s)} with "
            f"num_workers={many}",
            _fetch_parts(vitals),
            *_shared_evidence(vitals),
        ),
        prescriptions=(OWN_HANDLE, SHARDS),
    )


def _shared_evidence(vitals: Vitals) -> tuple[str, ...]:
    """Returns the evidence that every cause gives: the storage, the ready batches, the costliest lines of the fetch."""
    return (*_storage_lines(vitals), *stock_line(vitals), *fetch_lines(vitals))


def _fetch_parts(vitals: Vitals) -> str:
    """Says how long a fetch takes, and how much of it computes or queues for a core, as evidence."""
    cpu, queued = vitals.fetch_cpu_s, vitals.fetch_queued_s or 0.0
    parts = [] if cpu is None else [f"{formatting.seconds(cpu)} of CPU time"]
    parts += [f"{formatting.seconds(queued)} of waiting for a core"] if queued >= (cpu or 0.0) * BUSY_SHARE > 0 else []
    where = "" if not vitals.workers else " in a worker"
    took = f"fetching a batch takes {formatting.seconds(vitals.fetch_wall_s or 0.0)}{where}"
    return f"{took}: {', '.join(parts)}" if parts else took


def _on_cores(vitals: Vitals) -> tuple[str, ...]:
    """Says for how long loading and the loop need all cores, as evidence; empty unless that is half of a step."""
    if vitals.consumer_cpu_s is None or vitals.fetch_cpu_s is None:
        return ()
    needed_s = (vitals.fetches_cpu_s + vitals.consumer_cpu_s) / max(vitals.usable_cores, 1.0)
    if needed_s < BUSY_SHARE * (vitals.step_wall_s or 0.0):
        return ()
    cores = formatting.cores(vitals.usable_cores)
    return (f"loading and the loop need all of {cores} for {formatting.seconds(needed_s)} of each step",)


def _storage_lines(vitals: Vitals) -> tuple[str, ...]:
    """Says how long a fetch waits for the storage and what that delivers, as evidence; empty if it does not wait."""
    waiting_s, stored = stored_s(vitals), vitals.fetch_stored_bytes or 0.0
    if not waiting_s or not vitals.step_wall_s:
        return ()
    read = max(vitals.fetch_read_bytes or 0.0, stored)
    pace = stored * (vitals.batches_per_step or 1.0) / vitals.step_wall_s
    return (
        f"a fetch waits {formatting.seconds(waiting_s)} of its {formatting.seconds(vitals.fetch_wall_s or 0.0)} for "
        f"the storage, which delivers {formatting.size(stored)} of the {formatting.size(read)} that it reads",
        f"the storage delivers {formatting.bandwidth(pace)} to this loop",
    )


def _collates(vitals: Vitals) -> bool:
    """True if collating is at least half of the fetch."""
    return (vitals.collate_s or 0.0) >= COLLATE_SHARE * (vitals.fetch_wall_s or math.inf)


def _looks_up(vitals: Vitals, loader: LoaderSetup) -> bool:
    """True if samples are read from memory one by one and stacked by torch: whole batches could be indexed instead."""
    samples = (vitals.samples_per_step or 0.0) / (vitals.batches_per_step or 1.0)
    fetch_s = (vitals.fetch_wall_s or 0.0) - (vitals.fetch_queued_s or 0.0)
    cheap = loader.dataset in INDEXED or fetch_s <= CHEAP_SAMPLE_S * samples
    return cheap and loader.collate.startswith("default_collate") and not _whole_already(vitals, loader)


def _whole_first(vitals: Vitals, loader: LoaderSetup, workers: Forecast) -> bool:
    """True if whole batches should be advised before workers: they remove nearly all of the fetch and save more.

    Args:
        vitals: vitals of the run.
        loader: the training loader.
        workers: forecast with the best number of workers.
    """
    without_fetch_s = (vitals.step_wall_s or 0.0) - vitals.fetches_s
    return loader.dataset in INDEXED or workers.step_s >= CHEAPER * max(without_fetch_s, 0.0)


def _whole_already(vitals: Vitals, loader: LoaderSetup) -> bool:
    """True if the loader already requests whole batches: with `batch_size=None`, or through `__getitems__`.

    With `batch_size=None` torch's collate or a plain BatchSampler must be seen as well: a batch sampler of the user's
    own does not show it.
    """
    if any(line.function.rpartition(".")[2] == "__getitems__" for line in vitals.lines if line.phase == "data_wait"):
        return True
    whole = loader.collate == "default_convert" or loader.sampler == "BatchSampler"
    return loader.batch_size is None and whole


def _ahead(loader: LoaderSetup) -> int:
    """Returns how many batches each worker prefetches, or would if there were workers."""
    return loader.prefetch_factor or PREFETCH


def _further(vitals: Vitals, loader: LoaderSetup, fetchers: float) -> Prescription | None:
    """Prescribes a larger `prefetch_factor` that bridges a slow batch; None if no larger one is possible.

    Args:
        vitals: vitals of the run.
        loader: the training loader.
        fetchers: number of workers, of all loaders together.
    """
    a_batch_s = (vitals.consumer_s or 1.0) / (vitals.batches_per_step or 1.0)
    wanted = math.ceil(MARGIN * (vitals.fetch_p99_s or 0.0) / (fetchers * a_batch_s))
    room = int(STOCK_BYTES / max((vitals.batch_bytes or 0.0) * fetchers, 1.0))
    now = _ahead(loader)
    best = min(max(wanted, 2 * now), PREFETCH_MOST, room)
    if best <= now:
        return None
    return on_loader(loader, "prefetch_factor", best, f"Prefetch {best} batches in each worker")
