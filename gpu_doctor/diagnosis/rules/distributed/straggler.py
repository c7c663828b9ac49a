"""One rank works longer on every step than the others, and all of them wait for it.

What it means
    The ranks told each other how long they work on a step by themselves: fetch, copies, forward, optimizer and Python,
    without the backward and without communication. One of them takes much longer than the middle one.

Why it costs you
    Gradients are reduced over all ranks in every step, so each step lasts as long as on the slowest rank.

What to try
    Look at that rank's own recording: its data (longer samples, a slower disk), its work (rank 0 often logs,
    evaluates or saves alone), its cores (ranks that share them), its GPU.

When to leave it
    When it is a single long pause (a checkpoint) and you want it.
"""

from statistics import median_low

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.evidence import hot_lines
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("world_size", "step_wall_s", "step_s_by_rank")

STRAGGLER_SHARE = 0.10
"""TraceML 0.5 warns from 10 % of the step on, and calls 20 % severe."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where the slowest rank's own seconds exceed the middle rank's by a tenth of the step."""
    by_rank, step_s, world = vitals.step_s_by_rank, vitals.step_wall_s, vitals.setup.world
    if by_rank is None or not step_s or len(by_rank) < 2:
        return None
    slowest, usual = max(by_rank), median_low(by_rank)  # of two ranks the faster one is the usual
    cost = min((slowest - usual) / step_s, 1.0)
    if cost < STRAGGLER_SHARE:
        return None
    late = by_rank.index(slowest)
    mine = world is not None and world.rank == late
    return Finding(
        rule="straggler",
        headline=f"Rank {late} is late: {formatting.share(cost)} of the time {len(by_rank) - 1} other rank"
        f"{'s wait' if len(by_rank) > 2 else ' waits'} for it.",
        cost_share=cost,
        evidence=(
            f"of a step of {formatting.seconds(step_s)}, own work takes {formatting.seconds(slowest)} on rank {late}"
            + (" (this process)" if mine else "")
            + f", {formatting.seconds(usual)} on the usual one",
            *(hot_lines(vitals, ("data_wait", "other", "evaluation")) if mine else ()),
        ),
        prescriptions=(
            Prescription(
                text="Give the ranks equal work" if mine else f"Read the recording of rank {late}",
                safety=Safety.BY_HAND,
                code="run.recording.save(f'rank{dist.get_rank()}.npz')  # on every rank, then diagnose the late one's",
            ).saving_at_most(cost),
        ),
    )
