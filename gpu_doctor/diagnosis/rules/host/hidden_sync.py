"""An ordinary-looking line (`x[mask]`, `torch.nonzero(x)`) makes the loop wait for the GPU, and then the GPU idles.

What it means
    How large `x[mask]` is depends on the mask's values. The host has to wait until the GPU has computed them, as with
    `.item()`, though nothing in the line says so. The rule finds such lines by their text and by how long the host
    stood on them: a launch takes microseconds.

Why it costs you
    The wait empties the queue, and the GPU idles until the next launches reach it. Priced is the time on these lines,
    and no more than the GPU idles for.

What to try
    Keep the size fixed: multiply by the mask, or `torch.where(mask, x, 0)`, instead of cutting out; divide by
    `mask.sum()` for a mean. `repeat_interleave(..., output_size=n)` and `one_hot(x, classes)` need no wait. What has
    to be cut out can often be cut in the dataset, on the CPU.

When to leave it
    When the GPU has work queued all the time: then the wait only shows where it works. GPU: not yet run on one.
"""

from __future__ import annotations

from typing import Final

from gpu_doctor import formatting
from gpu_doctor.cell import has_copy, moved_lines, waiting_lines
from gpu_doctor.diagnosis.rules.compute.recompiles import again_share
from gpu_doctor.diagnosis.rules.evidence import dearest_lines
from gpu_doctor.diagnosis.rules.host import host_sync
from gpu_doctor.diagnosis.rules.rule import NAMING_BAR, Finding, Prescription, Safety
from gpu_doctor.diagnosis.rules.transfer.device_round_trips import tripping_share
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.lines import part, total
from gpu_doctor.recording import LineCost

NEEDS = ("gpu", "gpu_gap_share", "exposed_wait_share", "step_wall_s")

LAUNCHING_S: Final = 2e-4
"""Of a step: a line that only launches takes less. A launch takes about 10 us, and an index by a mask is some ten of
them with a copy of one number."""
MASKED = """\
loss = (per_token * mask).sum() / mask.sum()  # instead of per_token[mask].mean()
x = torch.where(mask, x, 0.0)  # instead of x = x[mask]"""


def check(vitals: Vitals) -> Finding | None:
    """Fires where the host stands on lines that need values of the GPU's, and the GPU idles as long."""
    lines, gap, step_s = hidden_lines(vitals), vitals.gpu_gap_share, vitals.step_wall_s
    seen = total(lines)
    if gap is None or step_s is None or not vitals.looked_at(seen):
        return None
    cost = min(seen, max(gap - _taken(vitals), 0.0))
    if cost < NAMING_BAR:
        return None
    said = list(dict.fromkeys(lines.values()))[:3]
    return Finding(
        rule="hidden-sync",
        headline=f"Lines that need values from the GPU leave it idle {formatting.share(cost)} of the time: {said[0]}.",
        cost_share=cost,
        evidence=(
            f"the host stands {formatting.seconds(seen * step_s)} of every step of {formatting.seconds(step_s)} there; "
            "the size of their result depends on values that the GPU has yet to compute",
            *dearest_lines(lines, vitals.source),
        ),
        prescriptions=(
            Prescription(
                text="Keep the size fixed: mask by multiplication or torch.where instead of cutting out",
                safety=Safety.BY_HAND,
                code=MASKED,
            ).saving_at_most(cost),
        ),
    )


def hidden_lines(vitals: Vitals) -> dict[LineCost, str]:
    """Lines on which the host stood longer than launching takes, each with the expression that waits; dearest first.

    What the loop does to a batch before it copies it to the GPU waits for nothing.
    """
    if not vitals.on_gpu or not vitals.step_wall_s:
        return {}
    found = waiting_lines(vitals.source, vitals.lines_in("forward", "other"))
    if has_copy(vitals.source):
        moved = set(moved_lines(vitals.source, list(found)))
        found = {one: said for one, said in found.items() if one in moved or one.phase == "forward"}
    least = LAUNCHING_S / vitals.step_wall_s
    # Python of torch's own under a line is other work of that line: of these expressions only `unique` has any.
    return {one: said for one, said in found.items() if one.share >= least and (not one.in_torch or "unique" in said)}


def waited_share(vitals: Vitals) -> float:
    """Share of the wall-clock, 0..1, that the GPU idles for waits: those that were heard (host-sync) and these."""
    found = (host_sync.check(vitals), check(vitals))
    return sum(one.cost_share or 0.0 for one in found if one is not None)


def within_share(vitals: Vitals) -> float:
    """What this rule prices of lines inside of forward and loss, 0..1."""
    found = check(vitals)
    return (
        (found.cost_share or 0.0) * (1.0 - part(priced_lines(vitals), hidden_lines(vitals)))
        if found is not None
        else 0.0
    )


def priced_lines(vitals: Vitals) -> list[LineCost]:
    """Those of them that lie outside of every phase and of the loss, where this rule prices them; else none."""
    if check(vitals) is None:
        return []
    return [one for one in hidden_lines(vitals) if one.phase == "other" and not one.before_backward]


def _taken(vitals: Vitals) -> float:
    """Of the gap, what has a rule of its own."""
    waited = host_sync.check(vitals)
    taken = vitals.exposed_share + tripping_share(vitals)
    return taken + vitals.chores_between_share + again_share(vitals) + ((waited.cost_share or 0.0) if waited else 0.0)
