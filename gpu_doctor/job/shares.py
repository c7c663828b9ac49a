"""What the ranks share: the samples, the cores of a machine, the GPUs. Each check gives remarks."""

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
"""torch's own, which go through the whole data set, whatever other ranks do."""
SHARE_OUT: Final = "Give the DataLoader sampler=DistributedSampler(dataset), and call its set_epoch each epoch."


@dataclass(frozen=True)
class Remark:
    """One thing that the ranks' recordings say side by side."""

    about: str
    """`waiting`, `data`, `cores`, `gpus` or `ranks`."""
    sentence: str
    to_do: str = ""
    """What to do about it; empty where nothing is to be done."""
    share: float | None = None
    """Part of a step that it costs, at most, 0..1; None = not measured."""


def data(ranks: Sequence[Rank]) -> Iterator[Remark]:
    """Whether the ranks train on the same samples, and whether each trains as much."""
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
            f"No rank's loader shares the samples out: each has a {clean(whole, 80)} over a data set{size}. Every rank "
            "goes through all samples in each epoch, unless each made a data set of its own part.",
            SHARE_OUT,
        )
    yield from _uneven(ranks)


def _equal_losses(ranks: Sequence[Rank]) -> int:
    """Steps in which all ranks had the same loss, to the last digit; 0 where one step differs or few were compared.

    Ranks have the same weights in each step, so other samples give other losses. Nothing else that is recorded tells
    samples apart.
    """
    if len(ranks) < 2:
        return 0
    common = reduce(np.intersect1d, [one.losses.step for one in ranks])
    if len(common) < FEWEST_STEPS:
        return 0
    values = np.asarray([one.losses.value[np.searchsorted(one.losses.step, common)] for one in ranks])
    known = np.isfinite(values).all(axis=0)
    values = values[:, known]
    if not (values == values[0]).all() or len(np.unique(values[0])) < FEWEST_STEPS:
        return 0
    return int(known.sum())


def _whole_data_set(ranks: Sequence[Rank]) -> str:
    """The sampler of torch's own that every rank has over data sets of one type and length; '' for anything else."""
    if len(ranks) < 2:
        return ""
    loaders = [one.loader for one in ranks]
    alike = {(one.sampler, one.dataset, one.dataset_len) if one is not None else None for one in loaders}
    first = loaders[0]
    if len(alike) > 1 or first is None or first.dataset_kind != "map":
        return ""
    return first.sampler if first.sampler in WHOLE_SAMPLERS else ""


def _uneven(ranks: Sequence[Rank]) -> Iterator[Remark]:
    """Ranks that trained fewer samples than others, of those whose run was not cut off."""
    ended = [one for one in ranks if one.outcome == "completed" and one.samples]
    if len(ended) < 2:
        return
    least, most = min(ended, key=_samples), max(ended, key=_samples)
    if _samples(least) >= (1.0 - NAMING_BAR) * _samples(most):
        return
    steps = f"{grouped(least.steps)} and {grouped(most.steps)} steps" if least.steps != most.steps else "as many steps"
    yield Remark(
        "data",
        f"The samples are shared out unevenly: rank {least.number} trained {grouped(_samples(least))}, rank "
        f"{most.number} {grouped(_samples(most))}, in {steps}.",
        "Give every rank as many samples: DistributedSampler does, by repeating a few or with drop_last=True.",
    )


def _samples(one: Rank) -> float:
    return one.samples or 0.0


def cores_of_hosts(ranks: Sequence[Rank]) -> Iterator[Remark]:
    """Threads and loader workers of the ranks of each host, against its cores."""
    for host, group in groupby(sorted(ranks, key=_host), key=_host):
        here = list(group)
        usable, threads = max(one.setup.usable_cores for one in here), sum(map(_threads, here))
        workers = sum(one.setup.training_workers for one in here)
        bound = sum(one.setup.usable_cores for one in here) <= max(one.setup.os_cores for one in here)
        if len(here) < 2 or threads + workers <= usable or bound:  # bound: each rank has cores of its own
            continue
        yield Remark(
            "cores",
            f"{len(here)} ranks on {clean(host, 80) or 'one machine'} have {count(threads, 'computing thread')} and "
            f"{count(workers, 'loader worker')}; it has {cores(usable)}.",
            _fewer(threads > len(here), workers > 0),
        )


def _fewer(threads: bool, workers: bool) -> str:
    """What to do about too many of them."""
    ways = {"set OMP_NUM_THREADS to the cores over the ranks": threads, "give each rank fewer workers": workers}
    said = " and ".join(way for way, there in ways.items() if there) or "start fewer ranks"
    return f"{said[0].upper()}{said[1:]}."


def _host(one: Rank) -> str:
    return one.host


def _threads(one: Rank) -> int:
    """Those that compute: on a GPU the one that launches, else torch's."""
    return 1 if one.setup.on_gpu else one.setup.torch_threads or 1


def gpus(ranks: Sequence[Rank]) -> Iterator[Remark]:
    """GPUs that no rank of their host trains on, GPUs that several train on, and those that idle."""
    seen = {(one.host, _name(card)): card for one in ranks for card in one.setup.devices}
    used: dict[tuple[str, str], list[int]] = {}
    for one in ranks:
        if one.setup.card is not None:
            used.setdefault((one.host, _name(one.setup.card)), []).append(one.number)
    idle = [key for key in seen if key not in used]
    if idle:
        hosts = ", ".join(dict.fromkeys(clean(host, 80) for host, _ in idle))
        yield Remark(
            "gpus",
            f"{count(len(idle), 'GPU')} on {hosts} can be used and no rank trains on it.",
            "Start as many ranks as there are GPUs, and move each rank's model to cuda:LOCAL_RANK.",
        )
    for (host, name), numbers in used.items():
        if len(numbers) > 1:
            said = " and ".join(map(str, numbers))
            yield Remark(
                "gpus",
                f"Ranks {said} train on the same GPU of {clean(host, 80)}, {clean(seen[host, name].name, 80)}.",
                "Move each rank's model to cuda:LOCAL_RANK.",
            )
    busy = [one for one in ranks if one.gpu_busy_share is not None]
    least = min(busy, key=lambda one: one.gpu_busy_share or 0.0, default=None)
    if least is not None and (least.gpu_busy_share or 0.0) < 1.0 - NAMING_BAR:
        yield Remark(
            "gpus", f"The GPU of rank {least.number} is busy {share(least.gpu_busy_share)} of its time, at most."
        )


def _name(card: DeviceSetup) -> str:
    """What tells a card from others of its host: a rank may see its own alone, as number 0."""
    return card.uuid or f"{card.index} {card.name}"
