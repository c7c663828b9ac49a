"""The loader's worker processes cannot start, because the dataset or its functions cannot be sent to them.

What it means
    macOS and Windows spawn workers, and Python 3.14 on Linux uses a forkserver. In both cases the dataset and
    `collate_fn` are pickled, and the worker imports the module that defines them. Classes from a notebook's cell are in
    no module, and lambdas, open files and locks cannot be pickled.

Why it costs you
    Either the loader fails with a pickling error or "exited unexpectedly", or it has to stay without workers, and then
    fetching and training take turns.

What to try
    Write the classes into a module. Open files in the worker, at the first `__getitem__`. Use named functions instead
    of lambdas. On Linux, `multiprocessing_context="fork"` avoids all of this.

In code
    # sick
    class Rows(Dataset): ...  # in a cell of the notebook
    loader = DataLoader(Rows(), num_workers=4, collate_fn=lambda rows: stack(rows))
    # cured
    from my_data import Rows, stack  # written by a cell with %%writefile my_data.py
    loader = DataLoader(Rows(), num_workers=4, collate_fn=stack)

When to leave it
    Leave it if the data is in memory and needs no workers.
"""

import re

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.evidence import gpu_or_loop
from gpu_doctor.diagnosis.rules.prescriptions import CANNOT, more_workers
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.recording import LoaderSetup

NEEDS = ("outcome",)


# Error messages of pickle, multiprocessing and torch; tried with spawn and forkserver on CPython 3.11, torch 2.13.
_PICKLING = re.compile(
    r"[Cc]an't pickle|cannot pickle|PicklingError|Can't get attribute .* on <module '__main__'|"
    r"start a new process before the current process has finished its bootstrapping|"
    r"attribute lookup .* on __main__ failed"
)
_GONE = re.compile(r"DataLoader worker \(pid\(?s?\)?.*exited unexpectedly")
MODULE = Prescription(
    text="Move dataset and collate function into a module",
    safety=Safety.BY_HAND,
    code="%%writefile my_data.py\nfrom torch.utils.data import Dataset\n\nclass Rows(Dataset): ...\n\n"
    "# in the next cell\nfrom my_data import Rows",
)
GUARD = Prescription(
    text="In a script, keep the loop under the main guard: spawned workers import the file",
    safety=Safety.BY_HAND,
    code='if __name__ == "__main__":\n    main()',
)
FORK = Prescription(
    text="Or fork the workers (Linux; not after CUDA was used in the dataset)",
    safety=Safety.BY_HAND,
    code='DataLoader(..., multiprocessing_context="fork")',
)


def check(vitals: Vitals) -> Finding | None:
    """Reports workers that failed to start, or a wait for data that workers would shorten if they could start."""
    if vitals.outcome == "failed":
        return _failed(vitals)
    return _wanted(vitals)


def _failed(vitals: Vitals) -> Finding | None:
    """Reports a run that failed because a loader's workers could not start."""
    loaders = vitals.setup.loaders
    stuck = next((each for each in loaders if each.refusals.get("num_workers", "").startswith(CANNOT)), None)
    if stuck is None and not vitals.steps:  # after a step, pickling of the user's own may be what failed
        stuck = next((each for each in loaders if each.num_workers and each.start_method != "fork"), None)
        error = _PICKLING.search(vitals.reason)
    else:
        error = _PICKLING.search(vitals.reason) or _GONE.search(vitals.reason)
    if stuck is None or not stuck.num_workers or not error:
        return None
    return Finding(
        rule="workers-cannot-start",
        headline=f"The loader's worker processes could not be started (num_workers={stuck.num_workers}).",
        cost_share=None,
        kind="hint",
        evidence=(vitals.reason, *_why(stuck)),
        prescriptions=_cures(stuck),
        risk="The loop ends before its first batch, in every run.",
    )


def _wanted(vitals: Vitals) -> Finding | None:
    """Reports a wait for data that more workers would shorten, but workers cannot start."""
    loader, wait = vitals.loader, vitals.steady_wait_share
    if loader is None or vitals.exposed_wait_share is None or vitals.fetch_wall_s is None:
        return None
    if not loader.refusals.get("num_workers", "").startswith(CANNOT):
        return None
    best = more_workers(vitals)
    if best is None:
        return None
    count, prediction = best
    return Finding(
        rule="workers-cannot-start",
        headline=f"The {gpu_or_loop(vitals)} waits for data {formatting.share(wait)} of the time, and workers "
        "cannot be started.",
        cost_share=wait,
        evidence=(
            *_why(loader),
            f"with {formatting.count(count, 'worker')} a step would be limited by {prediction.why}",
        ),
        prescriptions=(
            Prescription(
                text=f"{MODULE.text}, then load with {formatting.count(count, 'worker')}",
                safety=Safety.BY_HAND,
                code=f"{MODULE.code}\nDataLoader(..., num_workers={count})",
            ).expecting(prediction),
            *_cures(loader)[1:],
        ),
    )


def _why(loader: LoaderSetup) -> tuple[str, ...]:
    """Says why the loader's workers cannot start, as evidence."""
    refusal = loader.refusals.get("num_workers", "")
    return (refusal if refusal.startswith(CANNOT) else f"start method {loader.start_method}, dataset {loader.dataset}",)


def _cures(loader: LoaderSetup) -> tuple[Prescription, ...]:
    """Returns the prescriptions: a module, and, unless workers are forked, also the main guard or forking."""
    return (MODULE, GUARD, FORK) if loader.start_method != "fork" else (MODULE,)
