"""Putting samples together into a batch takes at least half of the fetch.

What it means
    `collate_fn` (padding, stacking, tokenising a whole batch) is the dear part of the fetch, not reading the samples.

Why it costs you
    It runs once a batch in the process that fetches; the loop waits for it.

What to try
    Vectorise it, allocate the batch once and fill it, move tokenising out of the loop. Where torch's own collate only
    stacks samples from memory, index whole batches instead (a BatchSampler with `batch_size=None`).

When to leave it
    When workers hide it: then the wait is not exposed and this rule is silent. So it is where workers stand idle and
    the loop waits all the same (an epoch's begin, handing batches over): the collate is not what it waits for.
"""

from gpu_doctor.rules.evidence import WHOLE_BATCHES, fetch_lines, millis, percent
from gpu_doctor.rules.rule import Finding, Prescription, Safety
from gpu_doctor.vitals import Vitals

NEEDS = ("loader", "exposed_wait_share", "fetch_wall_s", "collate_s", "step_wall_s", "batches_per_step")

WAIT_SHARE = 0.05
"""torch-tb-profiler's bar for data loading."""
COLLATE_SHARE = 0.5
"""Half of the fetch: below, the samples are dearer than putting them together."""
BUSY_SHARE = 0.5
"""Workers are the bound only if they fetch most of the time (bar of too-few-workers)."""
LOOKUP_S = 3e-5
"""A sample that takes less to read is a look-up in memory (3 to 30 us measured): whole batches save it as well."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where the collate is at least half of a fetch that the loop waits for."""
    wait, wall, collate_s, loader = vitals.exposed_wait_share, vitals.fetch_wall_s, vitals.collate_s, vitals.loader
    step_s, batches = vitals.step_wall_s, vitals.batches_per_step
    if wait is None or not wall or collate_s is None or loader is None or not step_s or not batches:
        return None
    wait = max(wait - (vitals.edge_share or 0.0), 0.0)
    collate_s = min(collate_s, wall)
    fetchers = vitals.workers * (vitals.loaders_at_once or 1.0) if vitals.workers else 1.0
    a_step = batches / (fetchers * step_s)  # per second of a fetch: the share of the time that it can cause
    if wait < WAIT_SHARE or collate_s < COLLATE_SHARE * wall or (vitals.workers and wall * a_step < BUSY_SHARE):
        return None
    # torch's own collate is dear only because it gets single samples: with whole batches all of such a fetch goes.
    samples = (vitals.samples_per_step or 0.0) / batches
    plain = loader.collate.startswith("default_collate") and wall - collate_s <= LOOKUP_S * samples
    cost = min(wait, (wall if plain else collate_s) * a_step)
    return Finding(
        rule="slow-collate",
        headline=f"Putting batches together sample by sample takes {percent(cost)} of the time ({loader.collate})."
        if plain
        else f"Putting batches together takes {percent(cost)} of the time ({loader.collate}).",
        cost_share=cost,
        evidence=(
            f"collate takes {millis(collate_s)} of the {millis(wall)} that a batch takes to fetch",
            *fetch_lines(vitals),
        ),
        prescriptions=(
            *((WHOLE_BATCHES,) if plain else ()),
            Prescription(
                text="Let the dataset return whole batches" if plain else "Vectorise collate_fn",
                safety=Safety.BY_HAND,
                code="def __getitems__(self, indices): ...  # returns the batch in one piece"
                if plain
                else "def collate_fn(samples): ...  # allocate the batch once, fill it with array operations",
            ),
        ),
    )
