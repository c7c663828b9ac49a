"""Prescriptions that several rules share: more workers, a larger batch, whole batches, cheaper samples.

A setting that the loader refuses becomes a prescription by hand. The code to paste names the loader's own arguments.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.forecast import best_workers, fewest_near_best, forecast, worker_counts
from gpu_doctor.diagnosis.forecast.prediction import Forecast
from gpu_doctor.diagnosis.forecast.stages import fetched_s
from gpu_doctor.diagnosis.rules.rule import Prescription, Safety
from gpu_doctor.diagnosis.vitals.fetching import contending_runs, slow_part_s
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.recording import LoaderSetup, SettingValue

TIMES = 4
"""Factor on the batch size that is advised if launches limit the loop."""
FEWEST_BATCHES = 10
"""Fewest steps an epoch that a larger batch must leave: with fewer, an epoch would hardly train."""
SHARD_FIRST = "Shard it by worker first"
"""End of a refusal by `loader_limits`: the stream's code does not divide its items among workers."""
CANNOT: Final = "Workers start by "
"""Start of a refusal by `loader_limits`: workers cannot be started."""
REPEATS: Final = "every worker would deliver all items again"
"""Part of a refusal by `loader_limits`: the dataset's code does not divide its items among workers."""
BUSY_SHARE: Final = 0.5
"""Part of the time for which workers must fetch; below it, the loop does not wait for the fetching."""
QUEUED: Final = 1 / 3
"""Part of a fetch that it must queue for a core for workers to be too many for the cores (see `COMPUTES`)."""
COMPUTES: Final = 0.5
"""Part of the rest of that fetch that must be CPU time for workers to be too many for the cores."""
SHARDED = """\
def __iter__(self):
    info = torch.utils.data.get_worker_info()
    first, step = (info.id, info.num_workers) if info else (0, 1)
    yield from itertools.islice(self.items(), first, None, step)"""
"""Code of an iterable-style dataset by which each worker takes its own share of the items."""
INDEXED: Final = {"TensorDataset"}
"""Datasets that return a whole batch for a list of indices without a change."""
CHUNKED = """\
def __iter__(self):  # of the dataset
    for rows in self.chunks():  # many rows, read and converted in one call
        yield from rows.split(batch_size)
loader = DataLoader(stream, batch_size=None)"""
GRAPHLESS: Final = re.compile(r"no_grad|inference_mode|set_grad_enabled|requires_grad_\(False\)|\.predict\(")
INFERENCE: Final = "with torch.inference_mode():\n    for inputs in loader:\n        outputs = model(inputs)"
COMPILED: Final = Prescription(
    "Compile the model", Safety.SAFE, settings={"compile": True}, code="model = torch.compile(model)"
)
SEGMENTS: Final = Prescription(
    "Let the allocator join free blocks (set it before torch is imported, in a fresh kernel)",
    Safety.BY_HAND,
    code='import os\nos.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"',
)
ONE_CALL = "def __getitems__(self, indices): ...  # of the dataset: one vectorised call a batch"


def on_loader(
    loader: LoaderSetup | None,
    knob: str,
    value: SettingValue,
    text: str,
    prediction: Forecast | None = None,
    safety: Safety = Safety.SAFE,
) -> Prescription:
    """Prescribes a setting of the loader: by a trial, or by hand with the reason if the loader refuses it.

    Args:
        loader: the loader to change, or None if it is not known.
        knob: name of the knob, which is also DataLoader's argument.
        value: the new value.
        text: what to do, without a full stop.
        prediction: the forecast of the change, or None if there is none.
        safety: what a trial of it does to the training.
    """
    refusal = loader.refusals.get(knob, "") if loader is not None else ""
    if SHARD_FIRST in refusal and value == 1 and loader is not None and not loader.num_workers:
        refusal = ""  # a single worker delivers every item once; the knob refuses it only if the loader has workers now
    return Prescription(
        text=f"{text} (not by a trial: {refusal})" if refusal else text,
        safety=Safety.BY_HAND if refusal else safety,
        settings={} if refusal else {knob: value},
        code=f"DataLoader(..., {knob}={value})",
    ).expecting(prediction)


def more_workers(vitals: Vitals) -> tuple[int, Forecast] | None:
    """Returns the best number of workers and its forecast; None if no larger number than now pays.

    Also None if two runs show that workers wait for each other.
    """
    best = best_workers(vitals) if contending_runs(vitals) is None else None
    return best if best is not None and best[1].pays and best[0] > (vitals.workers or 0) else None


def with_workers(loader: LoaderSetup, count: int, prediction: Forecast) -> Prescription:
    """Prescribes `count` workers; if every worker would repeat the whole stream, the code to divide it comes first."""
    workers = formatting.count(count, "worker")
    if count == 1 or SHARD_FIRST not in loader.refusals.get("num_workers", ""):
        return on_loader(loader, "num_workers", count, f"Load with {workers}", prediction)
    cure = on_loader(
        loader, "num_workers", count, f"Give each worker its own items, then load with {workers}", prediction
    )
    return replace(cure, code=f"{SHARDED}\n{cure.code}")


def surplus_workers(vitals: Vitals) -> tuple[int, Forecast] | None:
    """Returns a smaller number of workers that would be faster, with its forecast, or None.

    The number is 0 if the workers have little to do and yet the loop waits: sending a batch between processes then
    takes longer than fetching it. It is at most the number of cores if more workers than cores compute and queue for
    a core.
    """
    loader, workers, step_s = vitals.loader, vitals.workers, vitals.step_wall_s
    if not workers or loader is None or not step_s or REPEATS in loader.refusals.get("num_workers", ""):
        return None
    alone = forecast(vitals, {"num_workers": 0})
    if alone is not None and alone.pays and not slow_part_s(vitals) and fetched_s(vitals) < BUSY_SHARE * step_s:
        return 0, alone
    wall, cpu, queued = vitals.fetch_wall_s or 0.0, vitals.fetch_cpu_s or 0.0, vitals.fetch_queued_s or 0.0
    if workers <= vitals.usable_cores or queued < QUEUED * wall or cpu < COMPUTES * (wall - queued):
        return None
    counts = [n for n in worker_counts(vitals) if n <= max(vitals.usable_cores, 1)]
    known = {n: found for n in counts if (found := forecast(vitals, {"num_workers": n})) is not None and found.pays}
    return fewest_near_best(known)


def fewer_workers(loader: LoaderSetup | None, count: int) -> Prescription:
    """Prescribes `count` workers, fewer than now, to save memory."""
    return on_loader(loader, "num_workers", count, f"Use {formatting.count(count, 'loader worker')}")


def without_graph(vitals: Vitals) -> tuple[Prescription, ...]:
    """Prescribes to predict without recording gradients, unless they are known to be off.

    They are known to be off if the cell's text says so, or if forwards were inspected and none recorded gradients.
    """
    facts = vitals.evaluation_facts
    recorded = facts is not None and facts.with_gradients > 0
    known = bool(GRAPHLESS.search(vitals.source)) or (facts is not None and facts.forwards > 0)
    text = "Run it without recording gradients: they keep each layer's outputs in memory"
    return (Prescription(text, Safety.BY_HAND, code=INFERENCE),) if recorded or not known else ()


def whole_batches(loader: LoaderSetup) -> Prescription:
    """Prescribes to index data in memory one whole batch at a time, in the order in which the loader draws samples."""
    if loader.dataset_kind == "iterable":
        text = "Let the stream yield whole batches, many rows at a time, instead of single rows"
        return Prescription(text, Safety.BY_HAND, code=CHUNKED)
    text = "Index whole batches: use a list of indices instead of one index per sample"
    if loader.dataset not in INDEXED:
        text += " (the dataset's `__getitem__` then gets the list)"
    own = "loader.batch_sampler"
    if loader.batch_size:
        own = f"BatchSampler(loader.sampler, batch_size={loader.batch_size}, drop_last={loader.drop_last})"
    pinned = ", pin_memory=True" if loader.pin_memory else ""
    code = f"sampler = {own}\nloader = DataLoader(loader.dataset, batch_size=None, sampler=sampler{pinned})"
    if loader.batch_size:
        code = f"from torch.utils.data import BatchSampler\n{code}"
    return Prescription(text, Safety.BY_HAND, code=code)


def cheaper_samples(loader: LoaderSetup) -> Prescription:
    """Prescribes to compute less for each sample."""
    stream = loader.dataset_kind == "iterable"
    code = CHUNKED if stream else ONE_CALL if loader.batch_size else ""  # torch calls it only to make batches itself
    return Prescription(
        text="Make a sample cheaper: preprocess offline, cache, vectorise, or transform on the device",
        safety=Safety.BY_HAND,
        code=code,
    )


def larger_batch(
    vitals: Vitals, times: int = TIMES, text: str = "Use a larger batch: it gives each launch more to do"
) -> Prescription | None:
    """Prescribes a batch `times` as large, by a trial if the loader allows one.

    Returns:
        The prescription; None if no loader has a batch size, or if too few steps an epoch would remain.
    """
    loader = vitals.loader
    if loader is None or not loader.batch_size:
        return None
    size = times * loader.batch_size
    if loader.dataset_len is not None and loader.dataset_len < FEWEST_BATCHES * size:
        return None
    changes = "Fewer, larger batches: the same results but for rounding."
    if vitals.backward_share:
        changes = "Fewer, larger optimizer steps: scale the learning rate with the batch."
    cure = on_loader(loader, "batch_size", size, text, safety=Safety.CHANGES_TRAINING)
    return replace(cure, changes=changes)
