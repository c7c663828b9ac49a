"""Reasons why a cause could not be judged, in plain words: something was not measured, or the run does not have it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.rule import Cause
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.recording import Setup


@dataclass(frozen=True)
class Silence:
    """A cause that could not be judged, and why: not measured, ignored by the cell, or its rule failed."""

    rule: str
    """Name of the cause."""
    reason: str


IGNORED: Final = "ignored by a comment in the cell"
FAILED: Final = "failed: "
NO_GPU: Final = "no GPU"

_CLOCK: Final = "GPU timings are missing"
_NVML: Final = "NVML did not answer"
_LOADED: Final = "the GPU's clocks and link were not read under load"
_COPIES: Final = "copies to the GPU were not recorded"
_GPU_MEMORY: Final = "the GPU's memory was not read"
_ON_GPU: Final = {
    **dict.fromkeys(("gpu_gap_share", "gpu_busy_share", "caught_up_share", "launching_share"), _CLOCK),
    **dict.fromkeys(("gpu_forward_share", "gpu_backward_share", "gpu_optimizer_share"), _CLOCK),
    **dict.fromkeys(("gpu_util_pct", "tensor_active_pct", "device_used_bytes", "cards_seen", "driver_cuda"), _NVML),
    **dict.fromkeys(("throttled_share", "throttle_shares", "power_capped_share"), _LOADED),
    **dict.fromkeys(("sm_clock_mhz", "sm_clock_max_mhz"), _LOADED),
    **dict.fromkeys(("pcie_gen", "pcie_width", "pcie_gen_max", "pcie_width_max"), _LOADED),
    "link_bytes_per_s": "the speed of the link to the GPU was not read",
    **dict.fromkeys(("traffic", "transfers_per_step", "transfer_bytes_per_step", "pageable_share"), _COPIES),
    **dict.fromkeys(("sync_share", "syncs_per_step"), "waits for the GPU were not timed"),
    **dict.fromkeys(("peak_share", "memory_total_bytes", "reserved_peak_bytes"), _GPU_MEMORY),
    **dict.fromkeys(("idle_gpus", "used_gpus"), "the GPUs of this machine were not counted"),
    "architecture_support": "the GPU's architecture was not read",
    **dict.fromkeys(("gpu", "card", "capability"), "the GPU's capabilities were not read"),
}
"""Vital that only a loop on a GPU has -> reason that is shown if it is missing."""
_STEP: Final = "no step was timed"
_FETCH: Final = "the fetch of a batch was not timed"
_ANYWHERE: Final = {
    **dict.fromkeys(("loader", "workers"), "the loop uses no DataLoader"),
    **dict.fromkeys(("step_wall_s", "run_s", "steps_per_s", "other_share", "ours_share"), _STEP),
    **dict.fromkeys(("exposed_wait_share", "data_wait_share", "consumer_s"), "the wait for data was not timed"),
    **dict.fromkeys(("exposed_transfer_share", "transfer_share"), "copies to the device were not timed"),
    **dict.fromkeys(("forward_share", "no_grad_share"), "no forward pass was seen"),
    **dict.fromkeys(("backward_share", "loss_share"), "no backward pass was seen"),
    "optimizer_share": "no optimizer step was seen",
    "optimizer_facts": "no optimizer of torch was seen to step",
    "evaluation_share": "the evaluation was not identified",
    "operation_s": "needs exactly one backward per step",
    **dict.fromkeys(
        ("fetch_wall_s", "fetch_cpu_s", "collate_s", "collate_cpu_s", "fetch_median_s", "fetch_p99_s"), _FETCH
    ),
    "fetch_stored_bytes": "bytes read from the storage were not counted",
    **dict.fromkeys(("epochs", "edge_share"), "epochs could not be told apart"),
    "batches_per_step": "the batches of a step were not counted",
    **dict.fromkeys(("samples_per_s", "samples_per_step"), "the number of samples in a batch was not seen"),
    "chores": "costly calls, such as saving a checkpoint, were not recorded",
    "peak_bytes": "the run's own memory peak is unknown: it was not read, or an earlier one was higher",
    "host_growth_bytes_per_step": "the run is too short: too few readings of the process's memory",
    **dict.fromkeys(("host_memory_available_bytes", "host_memory_total_bytes"), "the machine's memory was not read"),
    "world_size": "other training processes were not counted",
    **dict.fromkeys(("model", "parameters", "inputs", "evaluation_facts"), "no model was seen running"),
    "padding": "no batch of a DataLoader was seen in the CPU's memory",
    "frozen": "no samples could be followed through a frozen model",
    "recompiled": "compilations of torch.compile were not recorded",
    "torch_threads": "the threads of torch were not counted",
}
"""Vital that any loop may have -> reason that is shown if it is missing. The most informative reasons stand first: a
cause that lacks several vitals gets the first of their reasons."""
_CLOCKED: Final = ("exposed_wait_share", "exposed_transfer_share")
"""Vitals that, on a GPU, need the device's own clock."""


def reason(cause: Cause, vitals: Vitals) -> str:
    """Returns the reason why a cause cannot be judged from these vitals, or "" if it can.

    If several vitals are missing, it is the most informative of their reasons.
    """
    lacking = {name for name in cause.needed(vitals) if getattr(vitals, name) is None}
    if not lacking:
        return ""
    of_gpu = lacking & _ON_GPU.keys()
    if of_gpu and not vitals.on_gpu:
        return no_gpu(vitals.setup)
    if vitals.on_gpu and lacking.intersection(_CLOCKED):
        return _CLOCK
    return next(words(name) for name in (*_ON_GPU, *_ANYWHERE, *sorted(lacking)) if name in lacking)


def words(vital: str) -> str:
    """Returns the reason that is shown if a vital was not measured."""
    return _ON_GPU.get(vital) or _ANYWHERE.get(vital) or f"{vital.replace('_', ' ')} was not measured"


def known(vital: str) -> bool:
    """True if a vital has a reason in the tables above."""
    return vital in _ON_GPU or vital in _ANYWHERE


def no_gpu(setup: Setup) -> str:
    """Returns the reason why no cause on GPUs is judged: there is no GPU, or the loop does not train on it."""
    return "the loop does not train on the GPU" if setup.devices else NO_GPU


def failed(error: BaseException) -> str:
    """Returns the reason for the causes of a rule that raised an error."""
    return FAILED + " ".join(formatting.raised(error).split())[:200]


def by_reason(silent: tuple[Silence, ...]) -> dict[str, tuple[str, ...]]:
    """Groups causes by reason: reason -> their names. Failures come first, then the reason that most causes share."""
    found: dict[str, list[str]] = {}
    for silence in silent:
        found.setdefault(silence.reason, []).append(silence.rule)
    order = sorted(found, key=lambda why: (not why.startswith(FAILED), -len(found[why])))
    return {why: tuple(found[why]) for why in order}
