"""Prescriptions that several rules share: more workers, a larger batch. What a loader refuses is left to the hand."""

from __future__ import annotations

from gpu_doctor.forecast import Forecast, batch_forecast
from gpu_doctor.recording import LoaderSetup
from gpu_doctor.rules.rule import Prescription, Safety
from gpu_doctor.vitals import Vitals

TIMES = 4
"""A batch so many times as large is advised where launches bind."""
FEWEST_BATCHES = 10
"""A batch that leaves fewer steps an epoch is not advised: there would be hardly any training in one."""
SHARD_FIRST = "Shard it by worker first"
"""How `loader_limits` ends where a stream's code does not share its items out among workers."""
SHARDED = """\
def __iter__(self):
    info = torch.utils.data.get_worker_info()
    first, step = (info.id, info.num_workers) if info else (0, 1)
    yield from itertools.islice(self.items(), first, None, step)"""
"""Of an iterable-style dataset: each worker takes its share."""


def with_workers(loader: LoaderSetup, count: int, seen: Forecast) -> Prescription:
    """So many workers, by a trial where the loader allows one; a stream that all would repeat is sharded first."""
    refusal = loader.refusals.get("num_workers", "")
    if SHARD_FIRST in refusal and count == 1:
        refusal = ""  # a single one delivers every item once
    shard, code = SHARD_FIRST in refusal, f"DataLoader(..., num_workers={count})"
    load = "Give each worker items of its own, then load" if shard else "Load"
    return Prescription(
        text=f"{load} with {count} worker{'s' if count > 1 else ''}" + _by_hand(refusal),
        safety=Safety.BY_HAND if refusal else Safety.SAFE,
        settings={} if refusal else {"num_workers": count},
        code=f"{SHARDED}\n{code}" if shard else code,
        predicted_speedup=seen.speedup,
        predicted_low=seen.low,
        predicted_high=seen.high,
    )


def larger_batch(
    vitals: Vitals, times: int = TIMES, text: str = "Give each launch more to do: a larger batch"
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
    refusal, seen = loader.refusals.get("batch_size", ""), batch_forecast(vitals, size)
    return Prescription(
        text=text + _by_hand(refusal),
        safety=Safety.BY_HAND if refusal else Safety.CHANGES_TRAINING,
        settings={} if refusal else {"batch_size": size},
        code=f"DataLoader(..., batch_size={size})",
        predicted_speedup=seen.speedup if seen is not None else None,
        predicted_low=seen.low if seen is not None else None,
        predicted_high=seen.high if seen is not None else None,
        changes="Fewer, larger optimizer steps: scale the learning rate with the batch.",
    )


def _by_hand(refusal: str) -> str:
    return f" (not by a trial: {refusal})" if refusal else ""
