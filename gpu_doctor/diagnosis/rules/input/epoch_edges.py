"""Rule for a loop that waits at the start of epochs or evaluation passes, for longer than fetching a batch takes."""

from __future__ import annotations

import math
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.forecast import forecast
from gpu_doctor.diagnosis.forecast.stages import edge_s
from gpu_doctor.diagnosis.rules.evidence import costliest_lines, epoch_start_line
from gpu_doctor.diagnosis.rules.prescriptions import on_loader
from gpu_doctor.diagnosis.rules.rule import Cause, Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.recording import LoaderSetup

NEEDS: Final = ("loader", "workers", "edge_share", "epochs", "fetch_wall_s", "step_wall_s")
CAUSES: Final = (
    Cause(
        "workers-restart-each-epoch",
        """
        The worker processes are started again for every epoch, and the loop waits for them.

        What it means
            Without `persistent_workers` the loader starts new processes in each epoch, and nothing trains until their
            first batches arrive. Each pass over an evaluation loader with workers starts processes too, and is counted
            here.

        Why it costs you
            Starting a worker means fork or spawn, imports and opening files, in every epoch. Short epochs suffer most.
            The cost is the measured wait, without the time to fetch a first batch.

        What to try
            Set `persistent_workers=True`, in the evaluation loader too. If fetching in the loop itself takes less time
            than starting workers and receiving their batches, use `num_workers=0`.

        In code
            # sick
            loader = DataLoader(dataset, num_workers=4)
            # cured
            loader = DataLoader(dataset, num_workers=4, persistent_workers=True)

        When to leave it
            Leave it if there is only one epoch, or if you change the dataset between epochs and the workers must see
            the change.
        """,
        NEEDS,
    ),
    Cause(
        "slow-epoch-start",
        """
        Each epoch begins with a long wait, and starting workers is not the reason.

        What it means
            The first batch of every epoch comes much later than the others. Before it, the training process runs
            `iter(loader)` and the sampler: it draws a random permutation of all indices as a Python list, or a weighted
            sample, or it runs the start of a stream's `__iter__`, which lists files and reads an index.

        Why it costs you
            Nothing trains meanwhile. Workers do not help, because the sampler runs in the training process. The
            permutation covers all samples even if the epoch ends after a few batches. The cost is the measured wait,
            without the time to fetch a first batch.

        What to try
            Draw with replacement: `RandomSampler(data, replacement=True, num_samples=...)` draws 32 indices at a time.
            Or shuffle shards instead of samples, list the files once in `__init__`, or keep one iterator for all
            epochs.

        In code
            # sick
            loader = DataLoader(data, batch_size=64, shuffle=True)  # each epoch draws all indices
            # cured
            sampler = RandomSampler(data, replacement=True, num_samples=64 * steps_per_epoch)
            loader = DataLoader(data, batch_size=64, sampler=sampler)

        When to leave it
            Leave it if your real epochs are long and only this run had short ones.
        """,
        NEEDS,
    ),
)

LEFT_EARLY: Final = 0.5
"""Largest part of an epoch's batches that is used for the advice to draw only those: the rest is drawn in vain."""
DRAWING: Final = """\
sampler = torch.utils.data.RandomSampler(data, replacement=True, num_samples=samples_per_epoch)
loader = torch.utils.data.DataLoader(data, sampler=sampler, ...)"""
FEWER: Final = "sampler = torch.utils.data.WeightedRandomSampler(weights, num_samples={samples})"
ONE_PASS: Final = """\
def __iter__(self):  # of the dataset: what epochs share is listed and opened once, in __init__
    while True:
        yield from self.samples()
batches = iter(loader)  # once, before the loop over epochs
for step in range(steps_per_epoch):
    batch = next(batches)"""
PERMUTATION: Final = (
    "Draw indices as they are needed, not all of them at the start of each epoch (a sample may then come twice)"
)
WEIGHTED: Final = (
    "Draw only the samples that an epoch uses, about {samples}: all `num_samples` are drawn when it starts"
)
STREAM: Final = "Start the stream once: keep one iterator that never ends, and list and open the files before it"
SAMPLER: Final = (
    "Make the sampler start faster: compute once, in its `__init__`, what its `__iter__` computes each epoch"
)


def check(vitals: Vitals) -> list[Finding]:
    """Reports epochs and evaluation passes whose start, within the run, takes longer than fetching the first batch."""
    loader = vitals.loader
    if loader is None or vitals.fetch_wall_s is None or not vitals.step_wall_s:
        return []
    epoch_share, pass_share = _epoch_start_share(vitals, loader), _evaluation_share(vitals)
    restarts = bool(vitals.workers) and not loader.persistent_workers
    found = (
        [_restarts(vitals, loader, epoch_share if restarts else 0.0, pass_share)]
        if (epoch_share and restarts) or pass_share
        else []
    )
    return found if restarts or not epoch_share else [*found, _slow_start(vitals, loader, epoch_share)]


def _epoch_start_share(vitals: Vitals, loader: LoaderSetup) -> float:
    """Share of the wall-clock that epoch starts take, without their first batch, which must be fetched anyway."""
    # At its end, a stream fetches one more batch, which may be empty and is not delivered.
    fetches = 2.0 if loader.dataset_kind == "iterable" else 1.0
    first_s = (vitals.fetch_wall_s or 0.0) * fetches + (vitals.handover_s or 0.0)
    epochs_per_step = vitals.edges / max(vitals.measured_steps, 1)
    return max(edge_s(vitals) - first_s * epochs_per_step, 0.0) / (vitals.step_wall_s or 1.0)


def _evaluation_share(vitals: Vitals) -> float:
    """Share of the wall-clock that restarting evaluation workers takes; 0 if no evaluation loader restarts them.

    The first pass over each loader is left out, and so is the fetch of each pass' first batch.
    """
    loaders = [loader for loader in vitals.setup.loaders if loader.role == "evaluation"]
    edge, passes, fetch_s = vitals.evaluation_edge_share, vitals.evaluation_passes, vitals.evaluation_fetch_s
    if edge is None or not passes or fetch_s is None or not vitals.run_s:
        return 0.0
    if not any(loader.num_workers and not loader.persistent_workers for loader in loaders):
        return 0.0
    repeated = max(passes - len(loaders), 0)
    return max(edge * repeated / passes - repeated * fetch_s / vitals.run_s, 0.0)


def _restarts(vitals: Vitals, loader: LoaderSetup, epoch_share: float, pass_share: float) -> Finding:
    """Builds the finding that workers are restarted, of the training loader, of the evaluation loader, or of both.

    Args:
        vitals: vitals of the run.
        loader: the training loader.
        epoch_share: share of the wall-clock that restarting the training loader's workers takes.
        pass_share: share that restarting the evaluation loaders' workers takes.
    """
    starts = [*(["epoch"] if epoch_share else []), *(["evaluation pass"] if pass_share else [])]
    return Finding(
        rule="workers-restart-each-epoch",
        headline=f"Workers are restarted for each {' and '.join(starts)}: the loop waits for them "
        f"{formatting.share(epoch_share + pass_share)} of the time.",
        cost_share=epoch_share + pass_share,
        evidence=(*(_epochs(vitals, loader) if epoch_share else ()), *(_passes(vitals) if pass_share else ())),
        prescriptions=_cures(vitals, loader, epoch_share, pass_share),
    )


def _epochs(vitals: Vitals, loader: LoaderSetup) -> tuple[str, ...]:
    """Returns the evidence on restarted workers of the training loader."""
    settings = f"num_workers={vitals.workers}, persistent_workers=False, start method {loader.start_method}"
    start_s, first_s, end_s = vitals.worker_start_s, vitals.worker_first_s, vitals.worker_end_s
    if start_s is None or first_s is None:
        return settings, epoch_start_line(vitals)
    ended = "" if end_s is None else f", and ending them {formatting.seconds(end_s)}"
    took = (
        f"starting the processes takes {formatting.seconds(start_s)}, their first batch {formatting.seconds(first_s)}"
    )
    return settings, epoch_start_line(vitals), f"{took} more{ended}"


def _passes(vitals: Vitals) -> tuple[str, ...]:
    """Returns the evidence on evaluation passes: their number and their waits."""
    passes = vitals.evaluation_passes or 1
    took_s = (vitals.evaluation_edge_share or 0.0) * (vitals.run_s or 0.0) / passes
    return (
        f"{passes} evaluation passes began, each after a wait of {formatting.seconds(took_s)}, "
        f"of which fetching a batch takes {formatting.seconds(vitals.evaluation_fetch_s or 0.0)}",
    )


def _cures(vitals: Vitals, loader: LoaderSetup, epoch_share: float, pass_share: float) -> tuple[Prescription, ...]:
    """Returns the prescriptions, best first.

    A setting of the training loader comes before the evaluation loader's, which is changed by hand, unless the
    evaluation costs more.
    """
    persistent = forecast(vitals, {"persistent_workers": True}) if epoch_share else None
    alone = forecast(vitals, {"num_workers": 0}) if epoch_share else None
    cures = (
        [on_loader(loader, "persistent_workers", True, "Keep the workers from epoch to epoch", persistent)]
        if epoch_share
        else []
    )
    if alone is not None and alone.pays and (persistent is None or alone.speedup > persistent.speedup):
        text = "Fetch in the loop itself: that is faster than starting workers and receiving their batches"
        cures.insert(0, on_loader(loader, "num_workers", 0, text, alone))
    if pass_share:
        text = (
            f"Keep the evaluation loader's workers{' as well' if epoch_share else ''} "
            f"({vitals.evaluation_passes} passes)"
        )
        code = "DataLoader(..., persistent_workers=True)  # of the evaluation data"
        cures.insert(0 if pass_share > epoch_share else len(cures), Prescription(text, Safety.BY_HAND, code=code))
    return tuple(cures)


def _slow_start(vitals: Vitals, loader: LoaderSetup, share: float) -> Finding:
    """Builds the finding that epochs start late although no worker is started for them.

    Args:
        vitals: vitals of the run.
        loader: the training loader.
        share: share of the wall-clock that the starts of epochs take.
    """
    stream = loader.dataset_kind == "iterable"
    over = f" over {formatting.count(loader.dataset_len, 'sample')}" if loader.dataset_len else ""
    drawn = () if stream or not loader.sampler else (f"the loader's sampler is a {loader.sampler}{over}",)
    text, code = (STREAM, ONE_PASS) if stream else (SAMPLER, "")
    if loader.sampler == "RandomSampler":
        text, code = PERMUTATION, DRAWING
    used = _used(vitals, loader)
    if used is not None and loader.sampler == "WeightedRandomSampler":
        text, code = WEIGHTED.format(samples=used), FEWER.format(samples=used)
    return Finding(
        rule="slow-epoch-start",
        headline=f"The loop waits {formatting.share(share)} of the time for the first batch of each epoch.",
        cost_share=share,
        evidence=(
            epoch_start_line(vitals),
            *drawn,
            *costliest_lines((line for line in vitals.lines_in("data_wait") if not line.in_torch), vitals.source),
        ),
        prescriptions=(Prescription(text=text, safety=Safety.BY_HAND, code=code),),
    )


def _used(vitals: Vitals, loader: LoaderSetup) -> int | None:
    """Returns how many samples an epoch uses; None if that is more than half of what its loader would deliver."""
    # Counted from the epoch starts, as warm-up is missing and the last epoch may be incomplete: rather too many samples
    # than too few.
    batches = vitals.measured_steps * (vitals.batches_per_step or 1.0) / max(vitals.edges, 1)
    if not loader.batches or not loader.batch_size or batches > LEFT_EARLY * loader.batches:
        return None
    return math.ceil(batches) * loader.batch_size
