"""Prescriptions that several rules share: more workers, a larger batch, whole batches, cheaper samples.

What a loader refuses is left to the hand; what is to be pasted is made of what was found of it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.forecast import best_workers, enough, forecast, worker_counts
from gpu_doctor.diagnosis.forecast.prediction import Forecast
from gpu_doctor.diagnosis.forecast.stages import fetched_s
from gpu_doctor.diagnosis.rules.rule import Prescription, Safety
from gpu_doctor.diagnosis.vitals.fetching import held_up, slow_part_s
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.recording import LoaderSetup, SettingValue

TIMES = 4
"""A batch so many times as large is advised where launches bind."""
FEWEST_BATCHES = 10
"""A batch that leaves fewer steps an epoch is not advised: there would be hardly any training in one."""
SHARD_FIRST = "Shard it by worker first"
"""How `loader_limits` ends where a stream's code does not share its items out among workers."""
CANNOT: Final = "Workers start by "
"""How `loader_limits` begins the refusal of workers that cannot be started."""
REPEATS: Final = "every worker would deliver all items again"
"""How it says that the dataset's code does not share items out."""
BUSY_SHARE: Final = 0.5
"""Workers that fetch for less than this part of the time are not what the loop waits for."""
QUEUED: Final = 1 / 3
"""Workers are too many for their cores if a fetch queues for a core for this part of its time,"""
COMPUTES: Final = 0.5
"""and computes for this part of the rest."""
SHARDED = """\
def __iter__(self):
    info = torch.utils.data.get_worker_info()
    first, step = (info.id, info.num_workers) if info else (0, 1)
    yield from itertools.islice(self.items(), first, None, step)"""
"""Of an iterable-style dataset: each worker takes its share."""
INDEXED: Final = {"TensorDataset"}
"""Datasets that answer a list of indices with a whole batch, as they are."""
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
    seen: Forecast | None = None,
    safety: Safety = Safety.SAFE,
) -> Prescription:
    """A setting of the loader, by a trial; by hand, and why, where the loader refuses one.

    Args:
        loader: that gets it.
        knob: its name, which is that of DataLoader's argument.
        value: what it is set to.
        text: what to do, without a full stop.
        seen: what is expected of it; None = not known.
        safety: of the trial.
    """
    refusal = loader.refusals.get(knob, "") if loader is not None else ""
    if SHARD_FIRST in refusal and value == 1 and loader is not None and not loader.num_workers:
        refusal = ""  # a single worker delivers every item once; the knob refuses it where there are several now
    return Prescription(
        text=f"{text} (not by a trial: {refusal})" if refusal else text,
        safety=Safety.BY_HAND if refusal else safety,
        settings={} if refusal else {knob: value},
        code=f"DataLoader(..., {knob}={value})",
    ).expecting(seen)


def more_workers(vitals: Vitals) -> tuple[int, Forecast] | None:
    """The best number of workers and its forecast, where it is more than there are now and pays.

    None too where two runs show that workers wait for each other.
    """
    best = best_workers(vitals) if held_up(vitals) is None else None
    return best if best is not None and best[1].pays and best[0] > (vitals.workers or 0) else None


def with_workers(loader: LoaderSetup, count: int, seen: Forecast) -> Prescription:
    """So many workers; a stream that all of them would repeat is sharded first."""
    workers = formatting.count(count, "worker")
    if count == 1 or SHARD_FIRST not in loader.refusals.get("num_workers", ""):
        return on_loader(loader, "num_workers", count, f"Load with {workers}", seen)
    cure = on_loader(loader, "num_workers", count, f"Give each worker its own items, then load with {workers}", seen)
    return replace(cure, code=f"{SHARDED}\n{cure.code}")


def surplus_workers(vitals: Vitals) -> tuple[int, Forecast] | None:
    """A smaller number of workers that would do better, and its forecast.

    None at all where they have little to do and yet the loop waits: handing a batch over then takes longer than
    fetching it. As many as there are cores where more of them compute, and queue for a core.
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
    known = {n: one for n in counts if (one := forecast(vitals, {"num_workers": n})) is not None and one.pays}
    return enough(known)


def fewer_workers(loader: LoaderSetup | None, count: int) -> Prescription:
    """So many workers, to spare memory."""
    return on_loader(loader, "num_workers", count, f"Use {formatting.count(count, 'loader worker')}")


def without_graph(vitals: Vitals) -> tuple[Prescription, ...]:
    """For a loop that predicts: no gradients, where its text or what was looked at does not say that there are none."""
    facts = vitals.evaluation_facts
    kept = facts is not None and facts.with_gradients > 0
    known = bool(GRAPHLESS.search(vitals.source)) or (facts is not None and facts.forwards > 0)
    text = "Run it without recording gradients: they keep each layer's outputs in memory"
    return (Prescription(text, Safety.BY_HAND, code=INFERENCE),) if kept or not known else ()


def whole_batches(loader: LoaderSetup) -> Prescription:
    """Batches in one piece for data in memory, drawn in the order in which the loader draws its samples."""
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
    """Less to compute for each sample, where its dataset lets one."""
    stream = loader.dataset_kind == "iterable"
    return Prescription(
        text="Make a sample cheaper: preprocess offline, cache, vectorise, or transform on the device",
        safety=Safety.BY_HAND,
        code=CHUNKED if stream else ONE_CALL,
    )


def larger_batch(
    vitals: Vitals, times: int = TIMES, text: str = "Use a larger batch: it gives each launch more to do"
) -> Prescription | None:
    """A batch so many times as large, by a trial where the loader allows one.

    Returns:
        None where no loader has a batch size, or too few steps an epoch would be left.
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
