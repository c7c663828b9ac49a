"""Fetching needs more CPU than any number of workers can give, or so little per sample that workers do not help.

What it means
    Either the CPU seconds of `__getitem__` exceed what the usable cores can give, or the data lies in memory and the
    time goes into taking samples out one by one: Python runs once a sample where one indexing could take a batch.

Why it costs you
    The device waits for the CPU, step after step. More workers only take the cores from each other, or cost more to
    hand batches over than they save.

What to try
    Do less per sample: decode and resize once and store the result (a JPEG can also be decoded smaller), cache what
    fits into memory, vectorise over the batch (`__getitems__`), move augmentation to the device. Data in memory: index
    whole batches. The hot lines say where to begin.

When to leave it
    When the work per sample is what you want to measure, or when a machine with more cores is the cheaper cure.
"""

import re

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.forecast import best_workers
from gpu_doctor.diagnosis.forecast.prediction import LEAST_GAIN, Forecast
from gpu_doctor.diagnosis.forecast.stages import CPU_BOUND, crowding_share, fetched_s, on_cores_s, unqueued_fetch_s
from gpu_doctor.diagnosis.rules.evidence import fetch_lines, inside_fetch
from gpu_doctor.diagnosis.rules.gpu_pace import BUSY_SHARE
from gpu_doctor.diagnosis.rules.input import too_many_workers
from gpu_doctor.diagnosis.rules.input.slow_collate import COLLATE_SHARE
from gpu_doctor.diagnosis.rules.prescriptions import cheaper_samples, whole_batches
from gpu_doctor.diagnosis.rules.python_pace import pace
from gpu_doctor.diagnosis.rules.rule import NAMING_BAR, Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.lines import total
from gpu_doctor.recording import LoaderSetup

NEEDS = ("loader", "exposed_wait_share", "fetch_wall_s", "fetch_cpu_s", "consumer_s", "step_wall_s", "batches_per_step")
EXCLUDES = ("slow-collate",)

CHEAP_SAMPLE_S = 1e-4
"""A sample that takes less is a look-up in memory (3 to 30 us on one machine, on others as much longer as Python takes
there), not a decoding or a computation."""
CHEAPER = 2.0
"""Whole batches are said first where workers would leave twice as much of the step (as for slow-generator)."""
DECODES = re.compile(
    r"Image\.open|\.convert\(|\bimread|\bimdecode|read_image|decode_(?:jpeg|image)|Resize|\.resize\(|thumbnail"
)
"""Text of a line that decodes or shrinks an image; Pillow decodes where the pixels are first asked for."""
DECODED_SHARE = 0.3
"""From this part of the fetch on, such lines are what to begin with."""
SMALLER = Prescription(
    text="Decode images no larger than needed, or store them resized once",
    safety=Safety.BY_HAND,
    code="image = Image.open(path)\n"
    'image.draft("RGB", (2 * size, 2 * size))  # before convert() or resize(): a JPEG decodes at 1/2, 1/4 or 1/8',
)
"""Pillow's documentation of `Image.draft`; 1024 x 1024 to 224 x 224 came 2.4 times as fast (Pillow 13)."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where a fetch that computes is exposed, as far as the best number of workers leaves it so."""
    loader, wait, wall, alone_s = (
        vitals.loader,
        vitals.exposed_wait_share,
        vitals.fetch_wall_s,
        unqueued_fetch_s(vitals),
    )
    if loader is None or wait is None or not wall or not vitals.step_wall_s or not alone_s:
        return None
    if vitals.fetches_cpu_s < CPU_BOUND * alone_s or (vitals.collate_s or 0.0) >= COLLATE_SHARE * wall:
        return None
    best = best_workers(vitals)
    if vitals.workers == 0 and best is not None and (not best[1].pays or in_one_indexing(vitals, best[1])):
        return _one_by_one(vitals, loader, wait, alone_s, best[1])
    # Where the loop would be sooner without its workers, that comes first: the wait is for the handing over.
    return None if too_many_workers.in_the_way(vitals) else _too_much(vitals, loader, best)


def in_one_indexing(vitals: Vitals, workers: Forecast) -> bool:
    """Whether a loop without workers that takes its samples from memory one by one gains more by whole batches.

    Args:
        vitals: of the run.
        workers: what the best number of workers is forecast to give.
    """
    loader, alone_s, step_s = vitals.loader, unqueued_fetch_s(vitals), vitals.step_wall_s
    if vitals.workers or loader is None or not alone_s or not step_s or _whole_batches(vitals):
        return False
    plain = loader.collate.startswith("default_collate") and loader.dataset_kind != "iterable"
    cheap = alone_s <= _cheap_s(vitals)
    fetch_s = max(vitals.fetches_s, alone_s)  # with what it queued
    return plain and cheap and workers.step_s >= CHEAPER * max(step_s - fetch_s, 0.0)


def _whole_batches(vitals: Vitals) -> bool:
    """The dataset is asked for whole batches already: by `batch_size=None`, or it was seen in its `__getitems__`.

    A batch sampler of the user's own says nothing of that.
    """
    loader = vitals.loader
    if any(one.function.rpartition(".")[2] == "__getitems__" for one in vitals.lines if one.phase == "data_wait"):
        return True
    told = loader is not None and (loader.collate == "default_convert" or loader.sampler == "BatchSampler")
    return loader is not None and loader.batch_size is None and told


def _one_by_one(vitals: Vitals, loader: LoaderSetup, wait: float, fetch_s: float, best: Forecast) -> Finding | None:
    """The loop fetches itself, and workers would not pay: the whole of the fetch can be saved, but not by them."""
    # With the fetch goes what it queued for a core, on a busy machine: the price is of its wall.
    wall_s, cpu_s = vitals.fetches_s, vitals.fetches_cpu_s
    cost = min(wait, max(wall_s, fetch_s) / (vitals.step_wall_s or fetch_s))
    cheap = bool(vitals.samples_per_step) and fetch_s <= _cheap_s(vitals)
    if cheap and _whole_batches(vitals):
        return None  # one indexing a batch: nothing is cheaper
    plain = loader.collate.startswith("default_collate")  # a collate of the user's own is not to be lost
    one_by_one = "" if _whole_batches(vitals) else " sample by sample"
    dear = cheap or best.speedup >= LEAST_GAIN  # a gain, but not where handing over is dear
    why = "a worker would take about as long to hand it over" if dear else "the loop itself needs the cores"
    if best.pays:
        why = f"with workers a step would take {formatting.seconds(best.step_s)} instead of "
        why += formatting.seconds(vitals.step_wall_s or 0.0)
    return Finding(
        rule="slow-getitem",
        headline=f"Fetching{one_by_one} takes {formatting.share(cost)} of the time, and workers would "
        f"{'save less of it than whole batches' if best.pays else 'not make it shorter'}.",
        cost_share=cost,
        evidence=(
            f"the fetch of a step takes {formatting.seconds(cpu_s)} of CPU time{_a_sample(vitals, cpu_s)}, "
            f"{formatting.seconds(wall_s)} in all; {why}",
            *fetch_lines(vitals),
        ),
        prescriptions=(whole_batches(loader),) if cheap and plain else _cheaper(vitals, loader),
    )


def _cheap_s(vitals: Vitals) -> float:
    """Seconds in which a step's samples are looked up in memory."""
    return CHEAP_SAMPLE_S * pace(vitals) * (vitals.samples_per_step or 0.0)


def _too_much(vitals: Vitals, loader: LoaderSetup, best: tuple[int, Forecast] | None) -> Finding | None:
    """What is left of the step beyond the training once workers are as many as help, never more than the wait.

    And what the training takes longer because they are on its cores.
    """
    cpu, consumer, step_s = vitals.fetch_cpu_s or 0.0, vitals.consumer_s or 0.0, vitals.step_wall_s or 0.0
    wait = vitals.steady_wait_share  # what epochs begin late is another rule's
    cpu_s, own_s = vitals.fetches_cpu_s, on_cores_s(vitals) or 0.0
    left_s = min(best[1].step_s if best is not None else step_s, step_s)
    cost = min(max(min(left_s, max(own_s, consumer)) - consumer, 0.0) / step_s, wait)
    queued_s = (vitals.fetch_queued_s or 0.0) * (vitals.batches_per_step or 1.0)
    crowding = crowding_share(vitals)
    if _all_there_is(vitals, best):  # the training alone would take the step without its wait
        cost = max(wait, cost)
    elif own_s <= consumer:
        cost = 0.0
    if cost < NAMING_BAR and crowding < NAMING_BAR:
        return None
    waits = f"the loop waits for it {formatting.share(cost)} of the time"
    takes = f"what it takes from the training costs {formatting.share(crowding)} of the time"
    told = [text for text, share in ((waits, cost), (takes, crowding)) if share >= NAMING_BAR]
    cost += crowding
    return Finding(
        rule="slow-getitem",
        headline=f"Loading needs more CPU than any number of workers can give: {', and '.join(told)}.",
        cost_share=cost,
        evidence=(
            f"a batch takes {formatting.seconds(cpu)} of CPU time{_a_sample(vitals, cpu_s)}; with the loop's own "
            f"CPU time that is {formatting.seconds(own_s)} a step on {formatting.cores(vitals.usable_cores)}; "
            f"everything else takes {formatting.seconds(consumer)}",
            *(
                (f"and its workers wait {formatting.seconds(queued_s)} for a core",)
                if queued_s > cpu_s * BUSY_SHARE
                else ()
            ),
            *fetch_lines(vitals),
        ),
        prescriptions=_cheaper(vitals, loader),
    )


def _all_there_is(vitals: Vitals, best: tuple[int, Forecast] | None) -> bool:
    """Workers that compute all the time are the bound, and no other number of them is forecast to help."""
    if not vitals.workers or (best is not None and best[1].pays):
        return False
    return fetched_s(vitals) >= BUSY_SHARE * (vitals.step_wall_s or 0.0)


def _cheaper(vitals: Vitals, loader: LoaderSetup) -> tuple[Prescription, ...]:
    """What makes a sample cheaper; images first, where decoding them is what the fetch consists of."""
    decoding = total(one for one in inside_fetch(vitals) if DECODES.search(one.text))
    return (*((SMALLER,) if decoding >= DECODED_SHARE else ()), cheaper_samples(loader))


def _a_sample(vitals: Vitals, seconds: float) -> str:
    return f" ({formatting.seconds(seconds / vitals.samples_per_step)} a sample)" if vitals.samples_per_step else ""
