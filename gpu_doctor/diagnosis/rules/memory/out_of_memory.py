"""The run ended because it ran out of memory.

What it means
    An allocation failed. On a GPU, torch's allocator reports what was requested, what was free and what held the rest.
    On the host, the system refused.

Why it costs you
    The run ended early, and everything learned since the last checkpoint is lost.

What to try
    In a loop that predicts, use `torch.inference_mode()` first. Then use a smaller batch: activations shrink with it;
    parameters, gradients and the optimizer's state do not. If the memory is there but in pieces, use expandable
    segments. If other processes hold it, end them. If the error came after many steps that fitted, look for what the
    loop keeps from step to step.

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
"""After so many steps without a backward and an optimizer's, the loop is known to predict."""
LATE_STEPS: Final = 20
"""After so many steps that fitted, it is not the usual batch that does not fit."""
STATES: Final = {"SGD": 0, "Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "RMSprop": 1, "Adagrad": 1, "Adamax": 2}
"""Copies of the parameters that an optimizer keeps (torch.optim; SGD without momentum, RMSprop plain)."""
HOST_SAYS: Final = ("DefaultCPUAllocator: can't allocate memory", "DefaultCPUAllocator: not enough memory")
"""What torch's allocator for the CPU says: no word of `out of memory`, so the run counts as failed."""
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
    """Fires on the outcome alone: a run may end so in its first step."""
    failed = vitals.outcome == "failed" and any(words in vitals.reason for words in HOST_SAYS)
    if vitals.outcome != "out-of-memory" and not failed:
        return None
    on_gpu = any(name in vitals.reason for name in ("CUDA", "HIP", "MPS"))
    return _on_gpu(vitals) if on_gpu else _on_host(vitals)


@dataclass(frozen=True)
class _Said:
    """Bytes that torch's message tells; None = it does not."""

    tried: float | None
    free: float | None
    allocated: float | None
    cached: float | None
    """Reserved by torch, in blocks that did not fit."""
    others: float | None
    """Held by other processes."""
    total: float | None

    @property
    def words(self) -> str:
        """All of them, as evidence."""
        figures = {
            "requested": self.tried,
            "free on the card": self.free,
            "in use by torch": self.allocated,
            "held by torch in blocks that did not fit": self.cached,
            "held by other processes": self.others,
            "on the card in all": self.total,
        }
        return ", ".join(f"{formatting.size(size)} {what}" for what, size in figures.items() if size is not None)


def _said(vitals: Vitals) -> _Said:
    def size(pattern: str) -> float | None:
        found = re.search(pattern.replace("SIZE", _SIZE), vitals.reason)
        return float(found[1]) * _UNITS[found[2]] if found else None

    # In a container torch lists itself by an id that it does not know as its own: then nobody can be told apart.
    own = "this process has" in vitals.reason
    listed = re.findall(rf"Process \d+ has {_SIZE} memory in use", vitals.reason) if own else []
    return _Said(
        tried=size("Tried to allocate SIZE"),
        free=size("of which SIZE is free"),
        allocated=size("SIZE is allocated by PyTorch"),
        cached=size("SIZE is reserved by PyTorch but unallocated"),
        others=sum(float(count) * _UNITS[unit] for count, unit in listed) or None,
        total=size("total capacity of SIZE") or vitals.memory_total_bytes,
    )


def _on_gpu(vitals: Vitals) -> Finding:
    said, evidence = _said(vitals), []
    cures = [NEIGHBOURS] if (said.others or 0.0) > (said.tried or 0.0) else []
    if said.cached is not None and said.tried is not None and said.cached >= said.tried:
        cures.append(SEGMENTS)
    if vitals.steps >= LATE_STEPS:
        grows = (vitals.device_growth_bytes_per_step or 0.0) > 0
        kept = "look for a larger batch, an evaluation, or something that is kept from step to step"
        what = "memory had grown all along" if grows else kept
        evidence.append(f"{vitals.steps} steps fitted before: {what}")
    fixed = _fixed_bytes(vitals)
    never = fixed is not None and said.total is not None and fixed > said.total
    if never and fixed is not None:
        held = "parameters" if _predicts(vitals) else "parameters, gradients and the optimizer's state"
        evidence.append(f"{held} alone take {formatting.size(fixed)}")
    cures += without_graph(vitals) if _predicts(vitals) else ()
    cures.append(_sharded(vitals) if never else _smaller(vitals))
    asked = f" when trying to allocate {formatting.size(said.tried)} more" if said.tried is not None else ""
    return Finding(
        rule="out-of-memory",
        kind="hint",
        headline=f"The GPU ran out of memory: the run ended after {formatting.count(vitals.steps, 'step')}{asked}.",
        cost_share=None,
        evidence=tuple(one for one in (said.words, *evidence) if one),
        prescriptions=tuple(cures),
        risk=RISK,
    )


def _sharded(vitals: Vitals) -> Prescription:
    other = "load its weights in half precision" if _predicts(vitals) else "train fewer parameters (adapters)"
    return Prescription(f"Shard the model over GPUs, or {other}: no batch is small enough", Safety.BY_HAND)


def _smaller(vitals: Vitals) -> Prescription:
    """Half the batch; of a single sample there is no half."""
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
    """Whether it is known to train nothing: a loop that ended in its first step may have been about to."""
    return vitals.predicts and vitals.steps >= KNOWN_STEPS


def _fixed_bytes(vitals: Vitals) -> float | None:
    """Parameters, where trained their gradients and the optimizer's state; None where the make is not known."""
    size, names = vitals.setup.parameter_bytes, vitals.setup.optimizers
    if size and _predicts(vitals):
        return float(size)
    if not size or not names or any(name not in STATES for name in names):
        return None
    return float(size) * (2 + max(STATES[name] for name in names))


def _on_host(vitals: Vitals) -> Finding:
    asked = re.search(r"tried to allocate (\d+) bytes", vitals.reason)
    said = (
        f"tried to allocate {formatting.size(float(asked[1]))} more" if asked else formatting.clean(vitals.reason, 160)
    )
    evidence = [said, *least_available(vitals)]
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
