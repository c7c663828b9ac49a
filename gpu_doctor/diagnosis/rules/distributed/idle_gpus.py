"""The machine has further GPUs that this training could use, and they do nothing.

What it means
    The process may use several GPUs. The model lies on some of them, there is no process group, and NVML sees no work
    of anybody else on the rest.

Why it costs you
    Where the GPU's own work is the bound, more GPUs share it. How much sooner that ends was not measured: nothing in
    this run tells what the exchange between them takes. So it has no price, and stands after whatever has one.

What to try
    One process per GPU with `DistributedDataParallel`, started by `torchrun`; in a notebook, `accelerate`'s
    `notebook_launcher`. Predictions have nothing to reduce: each process takes its part of the data. Or use the other
    GPUs for another run at the same time.

When to leave it
    When the GPU that is used waits for data or for the host: cure that first, more GPUs would wait too. When the others
    are reserved for somebody else.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("gpu_busy_share", "idle_gpus", "used_gpus", "world_size")

BUSY_SHARE = 0.5
"""Below, the GPU that is used waits for something else most of the time: that comes first."""
FULL_PCT = 50.0
"""The same by NVML's utilisation, which also sees the gaps inside of a step."""

TRAINED_BY_ALL = """\
# torchrun --nproc_per_node=gpu train.py
dist.init_process_group('nccl')
model = DistributedDataParallel(model.to(rank), device_ids=[rank])
loader = DataLoader(..., sampler=DistributedSampler(dataset))"""
SHARED_OUT = """\
# torchrun --nproc_per_node=gpu predict.py
rank, ranks = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
loader = DataLoader(Subset(dataset, range(rank, len(dataset), ranks)), ...)
model = model.to(rank)  # no gradients, so nothing to reduce: each process writes a file of its own"""


def check(vitals: Vitals) -> Finding | None:
    """Fires where a busy GPU works alone beside idle ones."""
    busy, idle, used, size = vitals.gpu_busy_share, vitals.idle_gpus, vitals.used_gpus, vitals.world_size
    if busy is None or not idle or not used or size is None or size > 1:
        return None
    util = vitals.gpu_util_pct
    if busy < BUSY_SHARE or (util is not None and util < FULL_PCT):
        return None
    do, works = "do" if idle > 1 else "does", "predicts" if vitals.predicts else "trains"
    return Finding(
        rule="idle-gpus",
        headline=f"{idle} of {used + idle} GPUs {do} nothing while one process {works}.",
        cost_share=None,
        kind="hint",
        evidence=(
            f"parameters on {used} GPU{'s' if used > 1 else ''}, {idle} more visible; one process, no process group",
            f"the GPU in use is busy {formatting.share(busy)} of the time",
        ),
        prescriptions=(
            Prescription(
                text="Let every GPU predict its part of the data, one process each"
                if vitals.predicts
                else "Train on all GPUs, one process each (gradients are reduced every step)",
                safety=Safety.BY_HAND,
                code=SHARED_OUT if vitals.predicts else TRAINED_BY_ALL,
                changes=""
                if vitals.predicts
                else "The batch of a step grows with the number of GPUs: scale the learning rate, or divide the batch.",
            ),
        ),
        risk="They stay unused. What they would gain is not measured.",
    )
