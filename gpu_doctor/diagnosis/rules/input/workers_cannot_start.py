"""The loader's worker processes cannot start, because the dataset or its functions cannot be sent to them.

What it means
    macOS and Windows spawn workers, and Python 3.14 on Linux uses a forkserver. There, the dataset and `collate_fn` are
    pickled, and the worker imports the module that defines them. Classes from a notebook's cell are in no module, and
    lambdas, open files and locks cannot be pickled.

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
from gpu_doctor.diagnosis.rules.evidence import who
from gpu_doctor.diagnosis.rules.prescriptions import CANNOT, more_workers
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.recording import LoaderSetup

NEEDS = ("outcome",)


# What pickle, multiprocessing and torch say; tried with spawn and forkserver on CPython 3.11, torch 2.13.
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
    """Fires where workers failed to start, or where the loop waits for want of workers that cannot."""
    if vitals.outcome == "failed":
        return _failed(vitals)
    return _wanted(vitals)


def _failed(vitals: Vitals) -> Finding | None:
    loaders = vitals.setup.loaders
    stuck = next((one for one in loaders if one.refusals.get("num_workers", "").startswith(CANNOT)), None)
    if stuck is None and not vitals.steps:  # later, it may as well be the user's own pickling that failed
        stuck = next((one for one in loaders if one.num_workers and one.start_method != "fork"), None)
        said = _PICKLING.search(vitals.reason)
    else:
        said = _PICKLING.search(vitals.reason) or _GONE.search(vitals.reason)
    if stuck is None or not stuck.num_workers or not said:
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
    loader, wait = vitals.loader, vitals.steady_wait_share
    if loader is None or vitals.exposed_wait_share is None or vitals.fetch_wall_s is None:
        return None
    if not loader.refusals.get("num_workers", "").startswith(CANNOT):
        return None
    best = more_workers(vitals)
    if best is None:
        return None
    count, seen = best
    return Finding(
        rule="workers-cannot-start",
        headline=f"The {who(vitals)} waits for data {formatting.share(wait)} of the time, and workers cannot be "
        "started.",
        cost_share=wait,
        evidence=(*_why(loader), f"with {formatting.count(count, 'worker')} a step would be limited by {seen.why}"),
        prescriptions=(
            Prescription(
                text=f"{MODULE.text}, then load with {formatting.count(count, 'worker')}",
                safety=Safety.BY_HAND,
                code=f"{MODULE.code}\nDataLoader(..., num_workers={count})",
            ).expecting(seen),
            *_cures(loader)[1:],
        ),
    )


def _why(loader: LoaderSetup) -> tuple[str, ...]:
    said = loader.refusals.get("num_workers", "")
    return (said if said.startswith(CANNOT) else f"start method {loader.start_method}, dataset {loader.dataset}",)


def _cures(loader: LoaderSetup) -> tuple[Prescription, ...]:
    return (MODULE, GUARD, FORK) if loader.start_method != "fork" else (MODULE,)
