"""Checks how the ranks share the samples, the cores of a machine, and the GPUs. Each check yields remarks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from typing import Final

import numpy as np

from gpu_doctor.diagnosis import FEWEST_STEPS, NAMING_BAR
from gpu_doctor.formatting import clean, cores, count, grouped, share
from gpu_doctor.job.rank import Rank
from gpu_doctor.recording import DeviceSetup

WHOLE_SAMPLERS: Final = ("RandomSampler", "SequentialSampler")
"""torch's samplers that go through the whole data set on every rank."""
SHARE_OUT: Final = "Give the DataLoader sampler=DistributedSampler(dataset) and call its set_epoch in each epoch."


@dataclass(frozen=True)
class Remark:
    """One result of comparing the ranks' recordings."""

    about: str
    """Topic: `waiting`, `data`, `cores`, `gpus` or `ranks`."""
    sentence: str
    to_do: str = ""
    """Advice; empty if there is nothing to do."""
    share: float | None = None
    """Part of a step that it costs at most, 0 to 1; None if not measured."""


def data(ranks: Sequence[Rank]) -> Iterator[Remark]:
    """Yields a remark if the ranks train on the same samples, or on different numbers of samples."""
    equal = _equal_losses(ranks)
    whole = _whole_data_set(ranks)
    if equal:
        sampler = f" Each rank's sampler is a {clean(whole, 80)}." if whole else ""
        yield Remark(
            "data",
            f"The {len(ranks)} ranks train on the same samples: their losses are the same numbers in all "
            f"{count(equal, 'step')} compared (unless the loop averages the loss before its backward).{sampler}",
            SHARE_OUT,
        )
    elif whole:
        loader = ranks[0].loader
        size = f" of {grouped(loader.dataset_len)} samples" if loader is not None and loader.dataset_len else ""
        yield Remark(
            "data",
            f"The loaders do not share the samples: each rank has a {clean(whole, 80)} over a data set{size}. Every "
            "rank goes through all samples in each epoch, unless each rank's data set is only a part.",
            SHARE_OUT,
        )
    yield from _uneven(ranks)


def _equal_losses(ranks: Sequence[Rank]) -> int:
    """Returns the number of steps compared if all ranks had the same loss in each, to the last digit, else 0.

    Ranks have the same weights in each step, so different samples give different losses. Nothing else in a recording
    distinguishes samples. The result is 0 for fewer than FEWEST_STEPS steps or losses.
    """
    if len(ranks) < 2:
        return 0
    common = reduce(np.intersect1d, [rank.losses.step for rank in ranks])
    if len(common) < FEWEST_STEPS:
        return 0
    values = np.asarray([rank.losses.value[np.searchsorted(rank.losses.step, common)] for rank in ranks])
    known = np.isfinite(values).all(axis=0)
    values = values[:, known]
    if not (values == values[0]).all() or len(np.unique(values[0])) < FEWEST_STEPS:
        return 0
    return int(known.sum())


def _whole_data_set(ranks: Sequence[Rank]) -> str:
    """Returns the name of the sampler if every rank goes through the same whole data set, else ''.

    All ranks must have one of WHOLE_SAMPLERS over data sets of the same type and length.
    """
    if len(ranks) < 2:
        return ""
    loaders = [rank.loader for rank in ranks]
    alike = {(loader.sampler, loader.dataset, loader.dataset_len) if loader is not None else None for loader in loaders}
    first = loaders[0]
    if len(alike) > 1 or first is None or first.dataset_kind != "map":
        return ""
    return first.sampler if first.sampler in WHOLE_SAMPLERS else ""


def _uneven(ranks: Sequence[Rank]) -> Iterator[Remark]:
    """Yields a remark if a completed rank trained on fewer samples than another completed rank."""
    ended = [rank for rank in ranks if rank.outcome == "completed" and rank.samples]
    if len(ended) < 2:
        return
    least, most = min(ended, key=_samples), max(ended, key=_samples)
    if _samples(least) >= (1.0 - NAMING_BAR) * _samples(most):
        return
    steps = f"{grouped(least.steps)} and {grouped(most.steps)} steps" if least.steps != most.steps else "as many steps"
    yield Remark(
        "data",
        f"The ranks have different numbers of samples: rank {least.number} trained {grouped(_samples(least))}, rank "
        f"{most.number} {grouped(_samples(most))}, in {steps}.",
        "Give every rank as many samples: DistributedSampler does, by repeating a few or with drop_last=True.",
    )


def _samples(rank: Rank) -> float:
    return rank.samples or 0.0


def cores_of_hosts(ranks: Sequence[Rank]) -> Iterator[Remark]:
    """Yields a remark for each host whose ranks have more threads and loader workers than the host has cores."""
    for host, group in groupby(sorted(ranks, key=_host), key=_host):
        here = list(group)
        usable, threads = max(rank.setup.usable_cores for rank in here), sum(map(_threads, here))
        workers = sum(rank.setup.training_workers for rank in here)
        bound = sum(rank.setup.usable_cores for rank in here) <= max(rank.setup.os_cores for rank in here)
        if len(here) < 2 or threads + workers <= usable or bound:  # bound: each rank has its own cores
            continue
        yield Remark(
            "cores",
            f"{len(here)} ranks on {clean(host, 80) or 'one machine'} have {count(threads, 'computing thread')} and "
            f"{count(workers, 'loader worker')}; it has {cores(usable)}.",
            _fewer(threads > len(here), workers > 0),
        )


def _fewer(threads: bool, workers: bool) -> str:
    """Returns the advice for too many threads or workers on a host."""
    ways = {"set OMP_NUM_THREADS to the cores over the ranks": threads, "give each rank fewer workers": workers}
    text = " and ".join(way for way, there in ways.items() if there) or "start fewer ranks"
    return f"{text[0].upper()}{text[1:]}."


def _host(rank: Rank) -> str:
    return rank.host


def _threads(rank: Rank) -> int:
    """Returns the number of computing threads: on a GPU the single thread that launches kernels, else torch's."""
    return 1 if rank.setup.on_gpu else rank.setup.torch_threads or 1


def gpus(ranks: Sequence[Rank]) -> Iterator[Remark]:
    """Yields remarks on GPUs that no rank trains on, GPUs that several ranks share, and GPUs that are often idle."""
    seen = {(rank.host, _name(card)): card for rank in ranks for card in rank.setup.devices}
    used: dict[tuple[str, str], list[int]] = {}
    for rank in ranks:
        if rank.setup.card is not None:
            used.setdefault((rank.host, _name(rank.setup.card)), []).append(rank.number)
    idle = [key for key in seen if key not in used]
    if idle:
        hosts = ", ".join(dict.fromkeys(clean(host, 80) for host, _ in idle))
        yield Remark(
            "gpus",
            f"{count(len(idle), 'GPU')} on {hosts} could be used, but no rank trains on it.",
            "Start as many ranks as there are GPUs, and move each rank's model to cuda:LOCAL_RANK.",
        )
    for (host, name), numbers in used.items():
        if len(numbers) > 1:
            listed = " and ".join(map(str, numbers))
            yield Remark(
                "gpus",
                f"Ranks {listed} train on the same GPU of {clean(host, 80)}, {clean(seen[host, name].name, 80)}.",
                "Move each rank's model to cuda:LOCAL_RANK.",
            )
    busy = [rank for rank in ranks if rank.gpu_busy_share is not None]
    least = min(busy, key=lambda rank: rank.gpu_busy_share or 0.0, default=None)
    if least is not None and (least.gpu_busy_share or 0.0) < 1.0 - NAMING_BAR:
        yield Remark(
            "gpus", f"The GPU of rank {least.number} is busy {share(least.gpu_busy_share)} of its time, at most."
        )


def _name(card: DeviceSetup) -> str:
    """Returns a name that is unique on the host: the uuid, because a rank may see only its own card as number 0."""
    return card.uuid or f"{card.index} {card.name}"
