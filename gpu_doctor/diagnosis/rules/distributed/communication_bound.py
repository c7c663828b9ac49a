"""The ranks exchange gradients and values for a large part of every step, and nothing is computed meanwhile.

What it means
    Reducing gradients between the processes takes longer than the backward can hide, or collectives called in the loop
    (`all_reduce`, `barrier`, `all_gather`) hold every rank up.

Why it costs you
    Adding GPUs then adds waiting, not speed.

What to try
    Fewer and smaller exchanges: gather metrics every n steps, drop barriers; gradients as bf16
    (`register_comm_hook(None, bf16_compress_hook)`); accumulate over micro-batches under `no_sync()`; larger buckets
    (`bucket_cap_mb`), `gradient_as_bucket_view=True`; a faster link between the GPUs.

When to leave it
    When one rank is late: the others' waiting looks like communication (the rule straggler tells them apart).
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.recording.setup import Chore

NEEDS = ("world_size", "chores", "run_s", "step_wall_s", "batches_per_step")

COMMUNICATION_SHARE = 0.10
"""torch-tb-profiler names communication from 10 % of the step on."""
KIND = "communication"


def check(vitals: Vitals) -> Finding | None:
    """Fires where collectives and unhidden reducing, without the wait for a late rank, take a tenth of the time."""
    world, step_s, called = vitals.setup.world, vitals.step_wall_s, vitals.chore_share(KIND)
    if world is None or world.world_size < 2 or not step_s or called is None:
        return None
    reducing_s, waited_s = _reducing_s(vitals), _for_the_late(vitals)
    cost = exchanging_share(vitals) - waited_s / step_s
    if cost < COMMUNICATION_SHARE:
        return None
    dearest = max(vitals.chores_of(KIND), key=lambda one: one.wall_s, default=None)
    return Finding(
        rule="communication-bound",
        headline=f"{world.world_size} ranks exchange data {formatting.share(cost)} of the time, and compute nothing "
        "meanwhile.",
        cost_share=cost,
        evidence=(*_figures(vitals, called, reducing_s, waited_s), *_line(dearest)),
        prescriptions=(
            Prescription(
                text="Exchange fewer bytes, and less often",
                safety=Safety.BY_HAND,
                code="from torch.distributed.algorithms.ddp_comm_hooks import default_hooks\n"
                "model.register_comm_hook(None, default_hooks.bf16_compress_hook)"
                if reducing_s / step_s >= called
                else "if step % 100 == 0:\n    dist.all_reduce(metric)",
                changes="bf16 gradients are rounded before they are added up." if reducing_s / step_s >= called else "",
            ).saving_at_most(cost),
        ),
    )


def exchanging_share(vitals: Vitals) -> float:
    """Share of the wall-clock in which ranks exchange data, or wait for each other, and nothing is computed, 0..1."""
    world, step_s = vitals.setup.world, vitals.step_wall_s
    if world is None or world.world_size < 2 or not step_s:
        return 0.0
    return min((vitals.chore_share(KIND) or 0.0) + _reducing_s(vitals) / step_s, 1.0)


def _reducing_s(vitals: Vitals) -> float:
    """Seconds of a step in which gradients are reduced: once a micro-batch, or once where `no_sync()` is in use."""
    world = vitals.setup.world
    return (vitals.reduce_exposed_s or 0.0) * (1.0 if world is None or world.unsynced else vitals.rounds)


def _for_the_late(vitals: Vitals) -> float:
    """Seconds of a step in which this rank waits for the slowest one's own work."""
    by_rank, world = vitals.step_s_by_rank, vitals.setup.world
    if by_rank is None or world is None or world.rank >= len(by_rank):
        return 0.0
    return max(by_rank) - by_rank[world.rank]


def _figures(vitals: Vitals, called: float, reducing_s: float, waited_s: float) -> tuple[str, ...]:
    step_s = vitals.step_wall_s or 1.0
    said = [f"collectives called in the loop: {formatting.share(called)} of the time"]
    if vitals.reduce_exposed_s is None:
        said.append("what DistributedDataParallel reduces in the backward was not measured")
    else:
        said.append(
            f"reducing gradients takes {formatting.seconds(reducing_s)} of a step of {formatting.seconds(step_s)} "
            "that the backward does not hide"
        )
    if vitals.step_s_by_rank is None:
        said.append("the ranks did not exchange their step times: a late rank may be the cause")
    elif waited_s > 0:
        said.append(f"not counted: {formatting.seconds(waited_s)} a step in which this rank waits for the slowest one")
    return tuple(said)


def _line(chore: Chore | None) -> tuple[str, ...]:
    if chore is None or not chore.text:
        return ()
    return (f"{chore.calls} calls, most from line {chore.line} in {chore.function}: {chore.text}",)
