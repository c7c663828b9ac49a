"""Putting samples together into a batch takes at least half of the fetch.

What it means
    `collate_fn` (padding, stacking, tokenising a whole batch) is the dear part of the fetch, not reading the samples.

Why it costs you
    It runs once a batch in the process that fetches; the loop waits for it.

What to try
    Vectorise it, allocate the batch once and fill it, let the dataset return whole batches (`__getitems__`), move
    tokenising out of the loop.

When to leave it
    When workers hide it: then the wait is not exposed and this rule is silent.
"""

from gpu_doctor.rules.evidence import hot_lines, millis, percent
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
    share = collate_s / wall
    if wait < WAIT_SHARE or share < COLLATE_SHARE:
        return None
    return Finding(
        rule="slow-collate",
        headline=f"Putting batches together takes {percent(wait * share)} of the time ({loader.collate}).",
        cost_share=wait * share,
        evidence=(
            f"collate takes {millis(collate_s)} of the {millis(wall)} that a batch takes to fetch",
            *hot_lines(vitals, ("data_wait",)),
        ),
        prescriptions=(
            Prescription(
                text="Vectorise collate_fn, or let the dataset return whole batches",
                safety=Safety.BY_HAND,
                code="def __getitems__(self, indices): ...  # returns the batch in one piece",
            ),
        ),
    )
