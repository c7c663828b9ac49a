"""Putting samples together into a batch takes at least half of the fetch.

What it means
    `collate_fn` (padding, stacking, tokenising a whole batch) is the dear part of the fetch, not reading the samples.

Why it costs you
    It runs once a batch in the process that fetches; the loop waits for it.

What to try
    Vectorise it, allocate the batch once and fill it, move tokenising out of the loop. Where torch's own collate only
    stacks samples from memory, index whole batches instead (a BatchSampler with `batch_size=None`).

When to leave it
    When workers hide it: then the wait is not exposed and this rule is silent.
"""

from gpu_doctor.rules.evidence import WHOLE_BATCHES, fetch_lines, millis, percent
from gpu_doctor.rules.rule import Finding, Prescription, Safety
from gpu_doctor.vitals import Vitals

NEEDS = ("loader", "exposed_wait_share", "fetch_wall_s", "collate_s")

WAIT_SHARE = 0.05
"""torch-tb-profiler's bar for data loading."""
COLLATE_SHARE = 0.5
"""Half of the fetch: below, the samples are dearer than putting them together."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where the wait is exposed and the collate is at least half of the fetch."""
    wait, wall, collate_s, loader = vitals.exposed_wait_share, vitals.fetch_wall_s, vitals.collate_s, vitals.loader
    if wait is None or not wall or collate_s is None or loader is None:
        return None
    share = min(collate_s / wall, 1.0)
    if wait < WAIT_SHARE or share < COLLATE_SHARE:
        return None
    # torch's own collate is dear only because it gets single samples: with whole batches all of the fetch goes.
    plain = loader.collate.startswith("default_collate")
    cost = wait if plain else wait * share
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
