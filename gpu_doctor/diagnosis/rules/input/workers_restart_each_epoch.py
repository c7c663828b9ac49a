"""Worker processes are started again for every epoch, and the loop waits for them.

What it means
    Without `persistent_workers` each epoch starts its own processes; until their first batches are there, nothing
    trains. So does each pass over an evaluation loader with workers, which is counted here as well.

Why it costs you
    The start of a worker (fork or spawn, imports, opening files) is paid once an epoch and worker. Short epochs pay
    most.

What to try
    `persistent_workers=True`, of the evaluation loader too: the processes stay and only begin the next epoch. Where a
    batch takes less to fetch than starting a worker or handing over costs: `num_workers=0`.

When to leave it
    When there is one epoch; when the dataset is changed between epochs and must reach the workers again.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.forecast import GOOD_ENOUGH, forecast, kept_workers
from gpu_doctor.diagnosis.forecast.prediction import Forecast
from gpu_doctor.diagnosis.rules.evidence import edge_line
from gpu_doctor.diagnosis.rules.prescriptions import on_loader
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("loader", "workers", "edge_share", "epochs", "fetch_wall_s")

SETTLED_STEPS = 16
"""Steps of an epoch from which on its mean tells what a step needs. A fork leaves the loop's memory to be copied page
by page: the first step after two workers' start took 6.1 ms, the next 3.0 and 2.0, later 1.7, without workers 1.1.
A count of steps: each touches the same pages, so that it is as good on a machine that copies them faster or slower."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where epochs or evaluation passes begin within the run and cost more than the first batch they hold.

    That batch has to be fetched whether workers stay or not; only the rest of an edge is the price of starting anew.
    """
    loader, workers = vitals.loader, vitals.workers
    if loader is None:
        return None
    stays = not workers or loader.persistent_workers
    own = None if stays else forecast(vitals, {"persistent_workers": True})  # None: one epoch, or no edge was seen
    both = kept_workers(vitals)
    seen = both or own
    if seen is None:
        return None
    cost = 1.0 - 1.0 / seen.speedup
    evaluating = "" if both is None else " and evaluation pass" if own is not None else ""
    return Finding(
        rule="workers-restart-each-epoch",
        headline=f"Workers are started again each {'epoch' if own is not None else 'evaluation pass'}{evaluating}: "
        f"the loop waits for them {formatting.share(cost)} of the time.",
        cost_share=cost,
        evidence=(*(_epochs(vitals) if own is not None else ()), *(_passes(vitals) if both is not None else ())),
        prescriptions=_cures(vitals, own, both),
    )


def _epochs(vitals: Vitals) -> tuple[str, ...]:
    method = vitals.loader.start_method if vitals.loader is not None else "fork"
    return (
        f"num_workers={vitals.workers}, persistent_workers=False, start method {method}",
        edge_line(vitals),
        *_timed(vitals),
    )


def _timed(vitals: Vitals) -> tuple[str, ...]:
    """What each part of an edge takes on average, the run's first start included; empty where it was not noted."""
    start_s, first_s, end_s = vitals.worker_start_s, vitals.worker_first_s, vitals.worker_end_s
    if start_s is None or first_s is None:
        return ()
    ended = "" if end_s is None else f", and ending them {formatting.seconds(end_s)}"
    return (
        f"starting the processes takes {formatting.seconds(start_s)}, their first batch "
        f"{formatting.seconds(first_s)} more{ended}",
    )


def _passes(vitals: Vitals) -> tuple[str, ...]:
    passes = vitals.evaluation_passes or 1
    edge_s = (vitals.evaluation_edge_share or 0.0) * (vitals.run_s or 0.0) / passes
    return (
        f"{passes} evaluation passes began, each after a wait of {formatting.seconds(edge_s)}, "
        f"of which fetching a batch takes {formatting.seconds(vitals.evaluation_fetch_s or 0.0)}",
    )


def _cures(vitals: Vitals, own: Forecast | None, both: Forecast | None) -> tuple[Prescription, ...]:
    """The best first; what a knob can try comes before what is done by hand and gains hardly more."""
    known: list[tuple[float, Prescription]] = []
    loader = vitals.loader
    if own is not None:
        text = "Keep the workers from epoch to epoch"
        known.append((own.speedup, on_loader(loader, "persistent_workers", True, text, own)))
    if both is not None:
        text = f"Keep the workers of evaluation passes ({vitals.evaluation_passes} of them){' as well' if own else ''}"
        code = "DataLoader(..., persistent_workers=True)  # of the evaluation data"
        known.append((both.speedup / GOOD_ENOUGH, Prescription(text, Safety.BY_HAND, code=code).expecting(both)))
    alone = forecast(vitals, {"num_workers": 0}) if vitals.workers and own is not None else None
    if alone is not None and alone.speedup >= GOOD_ENOUGH:
        text = "Fetch in the loop itself: that is faster than starting workers and handing batches over"
        text += ", of the evaluation data too (not in the figure)" if both is not None and _cheap_passes(vitals) else ""
        settled = _settles(vitals)
        if not settled:
            text += f": at least {formatting.forecast(alone.low)}, and more as steps after a start are slow; measure it"
        known.append((alone.speedup, on_loader(loader, "num_workers", 0, text, alone if settled else None)))
    return tuple(one for _, one in sorted(known, key=lambda pair: -pair[0]))


def _cheap_passes(vitals: Vitals) -> bool:
    """Fetching all of an evaluation pass takes less than its begin does now."""
    passes, edge, fetch_s = vitals.evaluation_passes, vitals.evaluation_edge_share, vitals.evaluation_fetch_s
    lengths = [one.batches for one in vitals.setup.loaders if one.role == "evaluation"]
    longest = max((one or 0 for one in lengths), default=0) if None not in lengths else 0
    if not passes or edge is None or fetch_s is None or not longest:
        return False
    return longest * fetch_s < edge * (vitals.run_s or 0.0) / passes


def _settles(vitals: Vitals) -> bool:
    """Whether most steps of an epoch show what the loop itself needs, and not what is left of the workers' start."""
    return vitals.measured_steps >= SETTLED_STEPS * max(vitals.epochs or 1, 1)
