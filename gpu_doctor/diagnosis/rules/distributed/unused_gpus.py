"""Rule for a process that leaves GPUs of its machine idle, or that drives several GPUs with one Python process.

The gain of more GPUs is not known: a run on one does not show what the exchange of gradients between them would cost.
"""

from __future__ import annotations

from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.rule import Cause, Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

CAUSES: Final = (
    Cause(
        "idle-gpus",
        """
        The machine has further GPUs that this process could use, and they do nothing.

        What it means
            The process may use several GPUs. The model is on some of them, there is no process group, and NVML sees no
            work of other processes on the rest.

        Why it costs you
            More GPUs can share the work if the GPU itself is the bottleneck. How much that gains was not measured, so
            this is a hint without a price.

        What to try
            Run one process per GPU with `DistributedDataParallel`, started by `torchrun`; in a notebook, use
            `notebook_launcher` of `accelerate`. For predictions, give each process its part of the data: there are no
            gradients to reduce. Or use the other GPUs for another run.

        In code
            # sick
            model = model.to("cuda")
            # cured
            dist.init_process_group("nccl")  # torchrun --nproc_per_node=gpu train.py
            rank = int(os.environ["LOCAL_RANK"])
            model = DistributedDataParallel(model.to(rank), device_ids=[rank])
            loader = DataLoader(dataset, sampler=DistributedSampler(dataset))

        When to leave it
            Leave it if the GPU in use waits for data or for the host: more GPUs would wait too. Leave it if the others
            are reserved.
        """,
        ("gpu_busy_share", "idle_gpus", "used_gpus", "world_size"),
    ),
    Cause(
        "data-parallel",
        """
        `nn.DataParallel` copies the model to every GPU in each step and gathers the outputs on one.

        What it means
            One Python process drives all GPUs. Each forward sends the model and the batch to them and brings the
            outputs back to the first GPU, which also holds the loss and the optimizer.

        Why it costs you
            The GPUs wait during the copies. Their launches wait for each other too, because one Python process makes
            all of them. PyTorch's documentation recommends `DistributedDataParallel` even on one machine. How much that
            gains was not measured, so this is a hint without a price.

        What to try
            Use `DistributedDataParallel` with one process per GPU. The model stays where it is, only gradients are
            exchanged, and that happens while the backward still computes. For predictions, give each process its part
            of the data.

        In code
            # sick
            model = torch.nn.DataParallel(model).cuda()
            # cured
            dist.init_process_group("nccl")  # torchrun --nproc_per_node=gpu train.py
            rank = int(os.environ["LOCAL_RANK"])
            model = DistributedDataParallel(model.to(rank), device_ids=[rank])

        When to leave it
            Leave it if a step is so long that the copies do not matter, or if the run is short.
        """,
        ("gpu", "gpu_busy_share", "model"),
    ),
)

BUSY_SHARE: Final = 0.5
"""Busy share below which the GPU in use mostly waits for something else, which should be cured first."""
FULL_PCT: Final = 50.0
"""NVML utilisation, in per cent, below which the same holds; it also shows gaps inside a step."""
TRAINED_BY_ALL: Final = """\
# torchrun --nproc_per_node=gpu train.py
dist.init_process_group('nccl')
model = DistributedDataParallel(model.to(rank), device_ids=[rank])
loader = DataLoader(..., sampler=DistributedSampler(dataset))"""
SHARED_OUT: Final = """\
# torchrun --nproc_per_node=gpu predict.py
rank, ranks = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
loader = DataLoader(Subset(dataset, range(rank, len(dataset), ranks)), ...)
model = model.to(rank)  # no gradients, so nothing to reduce: each process writes a file of its own"""


def check(vitals: Vitals) -> list[Finding]:
    """Reports GPUs that idle while one is busy, or the copying of DataParallel."""
    return [finding for finding in (_idle(vitals), _data_parallel(vitals)) if finding is not None]


def _idle(vitals: Vitals) -> Finding | None:
    """Reports idle GPUs of a process that keeps its own GPU busy (idle-gpus)."""
    busy, idle, used, size = vitals.gpu_busy_share, vitals.idle_gpus, vitals.used_gpus, vitals.world_size
    if busy is None or not idle or not used or size is None or size > 1:
        return None
    util = vitals.gpu_util_pct
    if busy < BUSY_SHARE or (util is not None and util < FULL_PCT):
        return None
    do, works = "do" if idle > 1 else "does", "predicts" if vitals.predicts else "trains"
    return Finding(
        rule="idle-gpus",
        kind="hint",
        headline=f"{idle} of {used + idle} GPUs {do} nothing while one process {works}: using them is worth a trial.",
        cost_share=None,
        evidence=(
            f"parameters on {used} GPU{'s' if used > 1 else ''}, {idle} more visible; one process, no process group",
            f"the GPU in use is busy {formatting.share(busy)} of the time",
        ),
        prescriptions=(_by_all(vitals),),
    )


def _data_parallel(vitals: Vitals) -> Finding | None:
    """Reports a model wrapped in DataParallel (data-parallel)."""
    model, busy, used = vitals.model, vitals.gpu_busy_share, vitals.used_gpus
    if not vitals.on_gpu or busy is None or model is None or model.wrapper != "DataParallel":
        return None
    over = f" over {used} GPUs" if used else ""
    return Finding(
        rule="data-parallel",
        kind="hint",
        headline=f"DataParallel copies the model{over} in every step: one process per GPU is worth a trial.",
        cost_share=None,
        evidence=(f"one Python process launches for all; the first GPU is busy {formatting.share(busy)} of the time",),
        prescriptions=(_by_all(vitals),),
    )


def _by_all(vitals: Vitals) -> Prescription:
    """Prescribes to use all GPUs with one process each."""
    if vitals.predicts:
        text = "Let every GPU predict its part of the data, one process each"
        return Prescription(text, Safety.BY_HAND, code=SHARED_OUT)
    return Prescription(
        "Train on all GPUs, one process each (DistributedDataParallel)",
        Safety.BY_HAND,
        code=TRAINED_BY_ALL,
        changes="The batch of a step grows with the number of GPUs: scale the learning rate, or divide the batch.",
    )
