"""The run ended because it ran out of memory.

What it means
    An allocation failed. On a GPU, torch's allocator reports how much was requested, how much was free and what held
    the rest. On the host, the system refused the allocation.

Why it costs you
    The run ended early, and everything learned since the last checkpoint is lost.

What to try
    In a loop that predicts, use `torch.inference_mode()` first. Then use a smaller batch: activations shrink with it;
    parameters, gradients and the optimizer's state do not. If enough memory is free but in pieces, use expandable
    segments. If other processes hold the memory, end them. If the error came after many steps that fitted, look for
    something that the loop keeps from step to step.

In code
    # sick
    loader = DataLoader(dataset, batch_size=128)
    # cured
    loader = DataLoader(dataset, batch_size=64)
    (criterion(model(x), y) / 2).backward()
    if (i + 1) % 2 == 0:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

When to leave it
    Leave it if you were looking for the largest batch that fits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.evidence import least_available
from gpu_doctor.diagnosis.rules.prescriptions import SEGMENTS, fewer_workers, without_graph
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("outcome",)

KNOWN_STEPS: Final = 2
"""Number of steps without backward and optimizer after which a loop is known to predict."""
LATE_STEPS: Final = 20
"""Number of steps that fitted after which the usual batch is not what does not fit."""
STATES: Final = {"SGD": 0, "Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "RMSprop": 1, "Adagrad": 1, "Adamax": 2}
"""Copies of the parameters that an optimizer keeps (torch.optim; SGD without momentum, RMSprop plain)."""
HOST_SAYS: Final = ("DefaultCPUAllocator: can't allocate memory", "DefaultCPUAllocator: not enough memory")
"""Messages of torch's allocator for the CPU. They do not say `out of memory`, so the run's outcome is `failed`."""
RISK: Final = "The run did not finish; the same settings will fail again."
NEIGHBOURS: Final = Prescription(
    "End the other processes on the card (often a forgotten kernel): see nvidia-smi", Safety.BY_HAND
)
MAPPED: Final = Prescription(
    "Map the data from a file instead of loading all of it (memory-mapped files)", Safety.BY_HAND
)
_SIZE: Final = r"([\d.]+) (bytes|KiB|MiB|GiB)"
_UNITS: Final = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def check(vitals: Vitals) -> Finding | None:
    """Reports a run that ended out of memory; only its outcome counts, as it may end in its first step."""
    failed = vitals.outcome == "failed" and any(words in vitals.reason for words in HOST_SAYS)
    if vitals.outcome != "out-of-memory" and not failed:
        return None
    on_gpu = any(name in vitals.reason for name in ("CUDA", "HIP", "MPS"))
    return _on_gpu(vitals) if on_gpu else _on_host(vitals)


@dataclass(frozen=True)
class _Message:
    """Figures in torch's out-of-memory message, in bytes; None = the message does not give it."""

    tried: float | None
    """Bytes that were requested."""
    free: float | None
    allocated: float | None
    cached: float | None
    """Bytes that torch has reserved, in blocks that did not fit."""
    others: float | None
    """Bytes that other processes hold."""
    total: float | None

    @property
    def words(self) -> str:
        """All figures that are known, as evidence."""
        figures = {
            "requested": self.tried,
            "free on the card": self.free,
            "in use by torch": self.allocated,
            "held by torch in blocks that did not fit": self.cached,
            "held by other processes": self.others,
            "on the card in all": self.total,
        }
        return ", ".join(f"{formatting.size(size)} {label}" for label, size in figures.items() if size is not None)


def _message(vitals: Vitals) -> _Message:
    """Reads the figures from the error that ended the run."""

    def size(pattern: str) -> float | None:
        found = re.search(pattern.replace("SIZE", _SIZE), vitals.reason)
        return float(found[1]) * _UNITS[found[2]] if found else None

    # In a container torch lists itself under an id that it does not recognise: other processes are then not known.
    own = "this process has" in vitals.reason
    listed = re.findall(rf"Process \d+ has {_SIZE} memory in use", vitals.reason) if own else []
    return _Message(
        tried=size("Tried to allocate SIZE"),
        free=size("of which SIZE is free"),
        allocated=size("SIZE is allocated by PyTorch"),
        cached=size("SIZE is reserved by PyTorch but unallocated"),
        others=sum(float(count) * _UNITS[unit] for count, unit in listed) or None,
        total=size("total capacity of SIZE") or vitals.memory_total_bytes,
    )


def _on_gpu(vitals: Vitals) -> Finding:
    """Builds the finding that the GPU's memory ran out, with prescriptions that depend on what holds it."""
    message, evidence = _message(vitals), []
    cures = [NEIGHBOURS] if (message.others or 0.0) > (message.tried or 0.0) else []
    if message.cached is not None and message.tried is not None and message.cached >= message.tried:
        cures.append(SEGMENTS)
    if vitals.steps >= LATE_STEPS:
        grows = (vitals.device_growth_bytes_per_step or 0.0) > 0
        search = "look for a larger batch, an evaluation, or something that is kept from step to step"
        advice = "memory had grown all along" if grows else search
        evidence.append(f"{vitals.steps} steps fitted before: {advice}")
    fixed = _fixed_bytes(vitals)
    never = fixed is not None and message.total is not None and fixed > message.total
    if never and fixed is not None:
        parts = "parameters" if _predicts(vitals) else "parameters, gradients and the optimizer's state"
        evidence.append(f"{parts} alone take {formatting.size(fixed)}")
    cures += without_graph(vitals) if _predicts(vitals) else ()
    cures.append(_sharded(vitals) if never else _smaller(vitals))
    request = f" when trying to allocate {formatting.size(message.tried)} more" if message.tried is not None else ""
    return Finding(
        rule="out-of-memory",
        kind="hint",
        headline=f"The GPU ran out of memory: the run ended after {formatting.count(vitals.steps, 'step')}{request}.",
        cost_share=None,
        evidence=tuple(line for line in (message.words, *evidence) if line),
        prescriptions=tuple(cures),
        risk=RISK,
    )


def _sharded(vitals: Vitals) -> Prescription:
    """Prescribes to shard the model, or to hold less of it, if not even its state fits."""
    other = "load its weights in half precision" if _predicts(vitals) else "train fewer parameters (adapters)"
    return Prescription(f"Shard the model over GPUs, or {other}: no batch is small enough", Safety.BY_HAND)


def _smaller(vitals: Vitals) -> Prescription:
    """Prescribes half the batch; for a single sample, checkpointing or half precision."""
    batch = vitals.loader.batch_size if vitals.loader is not None else None
    if not batch or batch < 2:
        text = "Recompute activations in the backward (checkpointing), or use half precision"
        if vitals.predicts:
            text = "Use half precision" + ("" if _predicts(vitals) else "; or, if it trains, activation checkpointing")
        return Prescription(text, Safety.BY_HAND)
    changes = f"an optimizer step every {round(batch / (batch // 2))} batches keeps the step of {batch} samples."
    changes = f"If it trains, {changes}" if vitals.predicts else formatting.sentence(changes)
    return Prescription(
        text=f"{'Run' if vitals.predicts else 'Train'} with a batch of {batch // 2}",
        safety=Safety.CHANGES_TRAINING,
        settings={"batch_size": batch // 2},
        code=f"DataLoader(..., batch_size={batch // 2})",
        changes="The same results but for rounding." if _predicts(vitals) else changes,
    )


def _predicts(vitals: Vitals) -> bool:
    """True if the loop is known to train nothing; one that ended in its first steps might have trained."""
    return vitals.predicts and vitals.steps >= KNOWN_STEPS


def _fixed_bytes(vitals: Vitals) -> float | None:
    """Bytes of the parameters and, in training, of gradients and optimizer state; None for an unknown optimizer."""
    size, names = vitals.setup.parameter_bytes, vitals.setup.optimizers
    if size and _predicts(vitals):
        return float(size)
    if not size or not names or any(name not in STATES for name in names):
        return None
    return float(size) * (2 + max(STATES[name] for name in names))


def _on_host(vitals: Vitals) -> Finding:
    """Builds the finding that the host's memory ran out."""
    request = re.search(r"tried to allocate (\d+) bytes", vitals.reason)
    error = (
        f"tried to allocate {formatting.size(float(request[1]))} more"
        if request
        else formatting.clean(vitals.reason, 160)
    )
    evidence = [error, *least_available(vitals)]
    if vitals.process_rss_bytes is not None:
        evidence.append(f"the process held {formatting.size(vitals.process_rss_bytes)}")
    workers = vitals.workers or 0
    return Finding(
        rule="out-of-memory",
        kind="hint",
        headline=f"The machine ran out of memory: the run ended after {formatting.count(vitals.steps, 'step')}.",
        cost_share=None,
        evidence=tuple(evidence),
        prescriptions=(fewer_workers(vitals.loader, workers // 2), MAPPED) if workers >= 2 else (MAPPED,),
        risk=RISK,
    )
