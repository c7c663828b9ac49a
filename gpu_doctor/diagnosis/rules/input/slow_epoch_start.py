"""Each epoch starts with a long wait that starting workers does not explain: shuffling, or opening the data again.

What it means
    The first batch of every epoch comes much later than the others. Before it, `iter(loader)` and the sampler run in
    the loop itself: a random permutation of all indices as a Python list, the weights of a sampler, the start of a
    stream's `__iter__` (listing files, reading an index).

Why it costs you
    Nothing trains meanwhile, and workers do not help: the sampler runs in the training process. A permutation takes
    about 0.05 us an index, paid in full even where the epoch is left after a few batches, and freeing it a third more.

What to try
    Longer epochs, or none: keep one iterator. Draw with replacement (`RandomSampler(data, replacement=True,
    num_samples=...)` draws 32 indices at a time), or shuffle shards and not samples. List files once, in `__init__`.

When to leave it
    When real epochs are long, and only this run had short ones.
"""

import math

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.epoch_end import leaving_share
from gpu_doctor.diagnosis.forecast.removed_work import Gain, at_best
from gpu_doctor.diagnosis.forecast.workers import drawing_s, taking_s
from gpu_doctor.diagnosis.rules.evidence import dearest_lines, edge_line
from gpu_doctor.diagnosis.rules.python_pace import pace
from gpu_doctor.diagnosis.rules.rule import NAMING_BAR, Finding, Prescription, Safety, faster
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("loader", "workers", "edge_share", "epochs", "fetch_wall_s", "step_wall_s")

LEAST_S = 5e-3
"""An iterator over a loader without workers is made in 0.1 to 0.5 ms, one whose workers stay is reset in 1 to 3 (one
machine of two cores; on others as much longer as Python takes there): below this there is nothing to win by another
sampler."""
LEFT_EARLY = 0.5
"""An epoch of which no more is used than this part has its order drawn in vain for the rest."""
FEWER = "sampler = torch.utils.data.WeightedRandomSampler(weights, num_samples={samples})"
DRAWING = """\
sampler = torch.utils.data.RandomSampler(data, replacement=True, num_samples=samples_per_epoch)
loader = torch.utils.data.DataLoader(data, sampler=sampler, ...)"""
ONE_PASS = """\
def __iter__(self):  # of the dataset: what epochs share is listed and opened once, in __init__
    while True:
        yield from self.samples()
batches = iter(loader)  # once, before the loop over epochs
for step in range(steps_per_epoch):
    batch = next(batches)"""
PERMUTATION = (
    "Draw indices as they are needed, not all of them at the start of each epoch (a sample may then come twice)"
)
WEIGHTED = (
    "Draw no more than an epoch uses: all of `num_samples` are drawn when it starts, and about {samples} are used"
)
STREAM = "Start the stream once: let it run forever, keep one iterator, and list and open the files before it"
SAMPLER = "Make the sampler start faster: compute once, in its `__init__`, what its `__iter__` computes each epoch"


def check(vitals: Vitals) -> Finding | None:
    """Fires where epochs begin within the run, no worker is started for them, and they begin late."""
    loader, edges, step_s, fetch_s = vitals.loader, vitals.edges, vitals.host_step_s, vitals.fetch_wall_s
    if loader is None or not step_s or fetch_s is None or not vitals.edge_s:
        return None
    if vitals.workers and not loader.persistent_workers:
        return None  # workers-restart-each-epoch
    handed_s = taking_s(vitals) if vitals.workers else 0.0
    # A stream ends with a batch that is fetched and not handed out, where it is not full.
    late_s = vitals.edge_s - handed_s - fetch_s * (2.0 if loader.dataset_kind == "iterable" else 1.0)
    left = 0.0 if vitals.on_gpu else leaving_share(vitals)  # a GPU may compute meanwhile
    cost = late_s * edges / (step_s * vitals.measured_steps) + left
    if late_s < LEAST_S * pace(vitals):
        return None
    permutes = drawing_s(vitals) >= late_s / 2.0
    stream = loader.dataset_kind == "iterable"
    named = "" if stream or not loader.sampler else f"the loader draws from a {loader.sampler}"
    freed_s = left * step_s * vitals.measured_steps / edges
    freed = (f"freeing an epoch's indices takes {formatting.seconds(freed_s)} at its end",)
    over = f" over {formatting.count(loader.dataset_len, 'sample')}" if loader.dataset_len else ""
    used = _used(vitals)
    text, code = (PERMUTATION, DRAWING) if permutes else (STREAM, ONE_PASS) if stream else (SAMPLER, "")
    if used is not None and loader.sampler == "WeightedRandomSampler":
        text, code = WEIGHTED.format(samples=used), FEWER.format(samples=used)
    return Finding(
        rule="slow-epoch-start",
        headline=f"Epochs start late: the loop waits {formatting.share(cost)} of the time for the first batch of an "
        "epoch.",
        cost_share=cost,
        evidence=(
            edge_line(vitals),
            *(freed if left >= NAMING_BAR else ()),
            *((f"{named}{over}",) if named else ()),
            *dearest_lines((one for one in vitals.lines_in("data_wait") if not one.in_torch), vitals.source),
        ),
        prescriptions=(
            Prescription(text=text, safety=Safety.BY_HAND, code=code).expecting(
                Gain(faster(cost), faster(cost / 2.0), at_best(cost)) if code else None
            ),
        ),
    )


def _used(vitals: Vitals) -> int | None:
    """Samples that an epoch uses of those that its loader would give; None where it uses more than half of them."""
    # Warm-up is missing and the last epoch may be open: by the edges, which errs towards more, never towards fewer.
    loader = vitals.loader
    batches = vitals.measured_steps * (vitals.batches_per_step or 1.0) / max(vitals.edges, 1)
    if loader is None or not loader.batches or not loader.batch_size or batches > LEFT_EARLY * loader.batches:
        return None
    return math.ceil(batches) * loader.batch_size
