"""Every pair of rows is compared in one large tensor, which is then summed, instead of by a matrix product.

What it means
    `F.cosine_similarity(a[:, None], b[None], dim=-1)`, `(a[:, None] * b[None]).sum(-1)` and squares or norms of
    `a[:, None] - b[None]` make rows x columns x size numbers to add them up at once. Read off the graph of the first
    backward, by its shapes.

Why it costs you
    The large tensor is written and read again several times, forward and backward, and autograd keeps it; a matrix
    product never makes it. `F.cosine_similarity` divides all of it by the lengths of rows besides: 128 rows of 128
    numbers are 8 MB, of which a forward and backward makes ten more. What it costs here is measured on a CPU: after the
    run both ways are timed, with its shapes.

What to try
    `F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).mT` for cosines, `a @ b.mT` for products, `torch.cdist(a, b)` for
    distances. GPU: not yet run on one; there it is priced by the time between forward and backward.

When to leave it
    When the large tensor is needed itself, or when distances of nearly equal rows must be exact: `torch.cdist` takes
    the difference of large numbers for more than 25 rows, unless it is told
    `compute_mode="donot_use_mm_for_euclid_dist"`.
"""

from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import gpu_pace, passes
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.arithmetic import itemsize
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.recording.setup import PairsByBroadcast

NEEDS = ("gpu_busy_share", "gpu_forward_share", "gpu_backward_share", "gpu_optimizer_share")
CPU_NEEDS = ("forward_share", "backward_share")

LEAST_BYTES = 1 << 20
"""Smaller tensors stay in a GPU's caches, and what counts then is how many operations there are (as for
loss-by-hand)."""
PASSES: Final = {"product": (2, 4), "cosine": (6, 36), "squares": (4, 10), "norm": (2, 7)}
"""Kind -> how often a number of the large tensor, or of one as large, is read or written, forward and backward
(derivatives.yaml of torch)."""
CALLED: Final = {
    "product": "products of rows",
    "cosine": "cosines of rows",
    "squares": "squared distances of rows",
    "norm": "distances of rows",
}
ROUNDED: Final = "The same result but for rounding"
CURES: Final = {
    "product": ("similarity = a @ b.mT  # for (a[:, None] * b[None]).sum(-1)", f"{ROUNDED}."),
    "cosine": (
        "similarity = F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).mT  # a: rows x size, b: columns x size",
        f"{ROUNDED}.",
    ),
    "squares": (
        "distances = torch.cdist(a, b).square()  # for (a[:, None] - b[None]).square().sum(-1)",
        f"{ROUNDED}, which is larger where two rows are nearly equal.",
    ),
    "norm": (
        "distances = torch.cdist(a, b)  # for (a[:, None] - b[None]).norm(dim=-1)",
        f"{ROUNDED}, which is larger where two rows are nearly equal.",
    ),
}
"""Kind -> the line, and what changes."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where a matrix product would save its part of the time."""
    one = vitals.setup.pairs_by_broadcast
    if one is None or one.kind not in CURES or not gpu_pace.kernels_set_it(vitals):
        return None
    found = _by_passes(vitals, one) if vitals.on_gpu else passes.saved(vitals, one.longer_s)
    if found is None:
        return None
    low, cost, high = found
    samples = f"{one.samples} x " if one.samples > 1 else ""
    code, changes = CURES[one.kind]
    return Finding(
        rule="broadcast-similarity",
        headline=f"Pairs of rows are compared in a tensor of {samples}{one.rows} x {one.columns} x {one.size}: "
        f"{'up to' if vitals.on_gpu else 'about'} {formatting.share(cost)} of the time; a matrix product does it.",
        cost_share=cost,
        evidence=(
            f"{CALLED[one.kind]}: {one.rows} by {one.columns} rows of {one.size} numbers, added up from "
            f"{formatting.size(one.numbers * itemsize(one.dtype))}{f', {one.calls} times' if one.calls > 1 else ''}",
            _source(vitals, one),
        ),
        prescriptions=(
            Prescription(
                text="Compare all pairs by one matrix product",
                safety=Safety.BY_HAND,
                code=code,
                changes=changes,
            ).saving(low, cost, high, at_most=vitals.on_gpu),
        ),
    )


def _by_passes(vitals: Vitals, one: PairsByBroadcast) -> tuple[float, float, float] | None:
    """Shares of the wall-clock on a GPU, low, usual and high: as if all between forward and backward were this."""
    loss, backward = passes.loss(vitals), passes.backward(vitals)
    if loss is None or backward is None or one.numbers * itemsize(one.dtype) < LEAST_BYTES:
        return None
    ahead, back = PASSES[one.kind]
    cost = gpu_pace.at_most(vitals, loss + min(loss * back / ahead, backward))
    return 0.0, cost, cost


def _source(vitals: Vitals, one: PairsByBroadcast) -> str:
    if vitals.on_gpu:
        return (
            f"{formatting.share(passes.loss(vitals))} of the time lie between forward and backward; estimated as if "
            "all of it were this"
        )
    longer = (one.longer_s or (0.0, 0.0))[1]
    return f"after the run both ways were timed with these sizes: a matrix product saves {formatting.seconds(longer)}"
