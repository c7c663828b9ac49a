"""Putting samples together into a batch takes at least half of the fetch.

What it means
    `collate_fn` (padding, stacking, tokenising a whole batch) is the expensive part of the fetch; reading the samples
    is not.

Why it costs you
    It runs once a batch in the process that fetches; the loop waits for it.

What to try
    Vectorise it, allocate the batch once and fill it, move tokenising out of the loop. Where torch's own collate only
    stacks samples from memory, index whole batches instead (a BatchSampler with `batch_size=None`). A collate of an
    installed package (a tokeniser's, a graph library's) is not yours to vectorise: give it less to do.

When to leave it
    When workers hide it: then the loop does not wait for it, and this rule is silent. It is silent too where workers
    are idle while the loop waits (at an epoch's start, or as batches are handed over): it waits for something else.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.evidence import ASKS, fetch_lines, library_calls
from gpu_doctor.diagnosis.rules.gpu_pace import BUSY_SHARE
from gpu_doctor.diagnosis.rules.prescriptions import ONE_CALL, whole_batches
from gpu_doctor.diagnosis.rules.python_pace import pace
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.lines import part

NEEDS = ("loader", "exposed_wait_share", "fetch_wall_s", "collate_s", "step_wall_s", "batches_per_step")

COLLATE_SHARE = 0.5
"""Half of the fetch: below, the samples are dearer than putting them together."""
LOOKUP_S = 3e-5
"""A sample that takes less to read is a look-up in memory (3 to 30 us on one machine, on others as much longer as
Python takes there): whole batches save it as well."""

ASKED_SHARE = 0.5
"""So much of the wait has that line on top: below, most of it are lines of a dataset or a collate of the user's."""
WHOLE_ITEMS = Prescription(text="Let the dataset return whole batches", safety=Safety.BY_HAND, code=ONE_CALL)
VECTORISE = Prescription(
    text="Vectorise collate_fn",
    safety=Safety.BY_HAND,
    code="def collate_fn(samples): ...  # allocate the batch once, fill it with array operations",
)
LESS_TO_DO = Prescription(
    text="Give the collate less to do: prepare (tokenise, convert) all data once before the loop, keep whole batches "
    "in a list, or use worker processes",
    safety=Safety.BY_HAND,
    code="batches = list(loader)  # once, where order and contents may stay; or prepare the dataset's samples here",
)


def check(vitals: Vitals) -> Finding | None:
    """Fires where the collate is at least half of a fetch that the loop waits for."""
    wall, collate_s, loader = vitals.fetch_wall_s, vitals.collate_s, vitals.loader
    step_s, batches = vitals.step_wall_s, vitals.batches_per_step
    if not wall or collate_s is None or loader is None or not step_s or not batches:
        return None
    collate_s = min(collate_s, wall)
    fetchers = vitals.workers * (vitals.loaders_at_once or 1.0) if vitals.workers else 1.0
    a_step = batches / (fetchers * step_s)  # per second of a fetch: the share of the time that it can cause
    if collate_s < COLLATE_SHARE * wall or (vitals.workers and wall * a_step < BUSY_SHARE):
        return None
    # torch's own collate is dear only because it gets single samples: with whole batches all of such a fetch goes.
    samples = (vitals.samples_per_step or 0.0) / batches
    plain = loader.collate.startswith("default_collate") and wall - collate_s <= LOOKUP_S * pace(vitals) * samples
    cost = min(vitals.steady_wait_share, (wall if plain else collate_s) * a_step)
    return Finding(
        rule="slow-collate",
        headline=f"Putting batches together sample by sample takes {formatting.share(cost)} of the time "
        f"({loader.collate})."
        if plain
        else f"Putting batches together takes {formatting.share(cost)} of the time ({loader.collate}).",
        cost_share=cost,
        evidence=(
            f"collate takes {formatting.seconds(collate_s)} of the {formatting.seconds(wall)} it takes to fetch a "
            f"batch{_computing(vitals)}",
            *fetch_lines(vitals),
        ),
        prescriptions=(
            *((whole_batches(loader),) if plain else ()),
            *((WHOLE_ITEMS,) if plain and loader.dataset_kind != "iterable" else ()),
            *(() if plain else (LESS_TO_DO if _installed(vitals) else VECTORISE,)),
        ),
    )


def _computing(vitals: Vitals) -> str:
    """How much of the collate is computing; what is not waits, for a disk, a lock or a core."""
    return "" if vitals.collate_cpu_s is None else f", {formatting.seconds(vitals.collate_cpu_s)} of it computing"


def _installed(vitals: Vitals) -> bool:
    """Whether the collate is an installed package's: torch's own, or no line of the user's is on top while it runs.

    Calls inside of packages count for the line that made them. Without workers that is the line that asks for the
    batch, or the call in which a library runs the loop; a collate of the user's has lines of its own. What workers do
    is not seen from that line.
    """
    if vitals.loader is not None and vitals.loader.collate.startswith("default_collate"):
        return True
    inside, calls = vitals.lines_in("data_wait"), library_calls(vitals)
    asks = (
        one
        for one in inside
        if (ASKS.search(one.text) or (one.file, one.line) in calls) and not _users_own(vitals, one.function)
    )
    return not vitals.workers and part(asks, inside) > ASKED_SHARE


def _users_own(vitals: Vitals, function: str) -> bool:
    named = vitals.loader.collate.rpartition(".")[2] if vitals.loader is not None else ""
    return function in (named, "__getitem__", "__getitems__")
