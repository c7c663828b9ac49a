"""The run ended because memory did not suffice: what was asked for, what held the rest, and what would fit.

What it means
    An allocation failed. On a GPU that is torch's allocator (its message says what was free and what was held); on the
    host it is the system's.

Why it costs you
    The run ended before its time, and what it had learnt since the last checkpoint is gone.

What to try
    In a loop that predicts, `torch.inference_mode()` first, if nothing turns gradients off yet. Then a smaller batch:
    activations grow with it, while parameters, gradients and the optimizer's state do not. Where the memory is there
    but in pieces, expandable segments; where other processes hold it, end them; where it came after many steps that
    fitted, look for what is kept from step to step.

When to leave it
    When you were looking for the largest batch that fits: now you know.
"""

import re

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.evidence import least_available
from gpu_doctor.diagnosis.rules.prescriptions import SEGMENTS, fewer_workers, without_graph
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("outcome",)

FITS_SHARE = 0.90
"""A batch is called fitting up to so much of the card (torch-tb-profiler's bar for nearly full)."""
KNOWN_STEPS = 2
"""After so many steps without a backward and an optimizer's, the loop is known to predict."""
LATE_STEPS = 20
"""After so many steps that fitted, it is not the usual batch that does not fit."""
STATES = {"SGD": 0, "Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "RMSprop": 1, "Adagrad": 1, "Adamax": 2}
"""Copies of the parameters that an optimizer keeps (torch.optim; SGD without momentum, RMSprop plain)."""

HOST_SAYS = ("DefaultCPUAllocator: can't allocate memory", "DefaultCPUAllocator: not enough memory")
"""What torch's allocator for the CPU says: no word of `out of memory`, so the run counts as failed."""

_SIZE = r"([\d.]+) (bytes|KiB|MiB|GiB)"
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def check(vitals: Vitals) -> Finding | None:
    """Fires on the outcome alone: a run may end so in its first step."""
    failed = vitals.outcome == "failed" and any(words in vitals.reason for words in HOST_SAYS)
    if vitals.outcome != "out-of-memory" and not failed:
        return None
    return _on_gpu(vitals) if _is_gpu(vitals) else _on_host(vitals)


def _is_gpu(vitals: Vitals) -> bool:
    return "CUDA" in vitals.reason or "HIP" in vitals.reason or "MPS" in vitals.reason


def _bytes(pattern: str, text: str) -> float | None:
    """The size in torch's message that a pattern leads to."""
    found = re.search(pattern.replace("SIZE", _SIZE), text)
    return float(found[1]) * _UNITS[found[2]] if found else None


def _on_gpu(vitals: Vitals) -> Finding:
    said = vitals.reason
    tried = _bytes("Tried to allocate SIZE", said)
    total = _bytes("total capacity of SIZE", said) or vitals.memory_total_bytes
    free = _bytes("of which SIZE is free", said)
    allocated = _bytes("SIZE is allocated by PyTorch", said)
    cached = _bytes("SIZE is reserved by PyTorch but unallocated", said)
    # In a container torch lists itself by an id that it does not know as its own: then nobody can be told apart.
    listed = re.findall(rf"Process \d+ has {_SIZE} memory in use", said) if "this process has" in said else []
    others = sum(float(count) * _UNITS[unit] for count, unit in listed)
    figures = {
        "asked for": tried,
        "free on the card": free,
        "in use by torch": allocated,
        "held by torch in blocks that did not fit": cached,
        "held by other processes": others or None,
        "of the card": total,
    }
    evidence = [", ".join(f"{formatting.size(size)} {what}" for what, size in figures.items() if size is not None)]
    cures = []
    if others and others > (tried or 0.0):
        cures.append(
            Prescription(
                "End the other processes on the card (often a forgotten kernel): see nvidia-smi", Safety.BY_HAND
            )
        )
    if cached is not None and tried is not None and cached >= tried:
        cures.append(SEGMENTS)
    if vitals.steps >= LATE_STEPS:
        grows = (vitals.device_growth_bytes_per_step or 0.0) > 0
        what = (
            "memory had grown all along"
            if grows
            else "a larger batch, an evaluation, or what is kept from step to step"
        )
        evidence.append(f"it came after {vitals.steps} steps that fitted: {what}")
    needed = None if tried is None or allocated is None else tried + allocated
    if _predicts(vitals):
        cures += without_graph(vitals)
    cures += _smaller(vitals, total, needed, evidence)
    asked = f" when trying to allocate {formatting.size(tried)} more" if tried is not None else ""
    return Finding(
        rule="out-of-memory",
        headline=f"The GPU ran out of memory: the run ended after {formatting.count(vitals.steps, 'step')}{asked}.",
        cost_share=None,
        kind="hint",
        evidence=tuple(one for one in evidence if one),
        prescriptions=tuple(cures),
        risk="The run did not finish; the same settings will fail again.",
    )


def _smaller(vitals: Vitals, total: float | None, needed: float | None, evidence: list[str]) -> list[Prescription]:
    """A batch that fits, as far as can be told: what does not grow with the batch is known, the rest grows with it."""
    batch = vitals.loader.batch_size if vitals.loader is not None else None
    fixed = _fixed_bytes(vitals)
    if fixed is not None and total and fixed > FITS_SHARE * total:
        evidence.append(f"{_fixed_words(vitals)} alone take {formatting.size(fixed)}")
        text = (
            "Shard the model over GPUs, or load its weights in half precision: no batch is small enough"
            if _predicts(vitals)
            else "Shard the model over GPUs, or train fewer parameters (adapters): no batch is small enough"
        )
        return [Prescription(text, Safety.BY_HAND)]
    if not batch or batch < 2:
        text = "Recompute activations in the backward (checkpointing), or use half precision"
        if vitals.predicts:
            text = "Use half precision" + ("" if _predicts(vitals) else "; or, if it trains, activation checkpointing")
        return [Prescription(text, Safety.BY_HAND)]
    target = batch // 2
    if fixed is not None and total and needed is not None and needed > fixed:
        room = (FITS_SHARE * total - fixed) / (needed - fixed)
        target = max(min(target, int(batch * room)), 1)
        evidence.append(
            f"{formatting.size(fixed)} of it do not depend on the batch ({_fixed_words(vitals)}); "
            f"of {batch} samples at most {max(int(batch * room), 1)} would fit"
        )
    return [
        Prescription(
            text=f"{'Run' if vitals.predicts else 'Train'} with a batch of {target}",
            safety=Safety.CHANGES_TRAINING,
            settings={"batch_size": target},
            code=f"DataLoader(..., batch_size={target})",
            changes=_changes(vitals, batch, target),
        )
    ]


def _predicts(vitals: Vitals) -> bool:
    """Whether it is known to train nothing: a loop that ended in its first step may have been about to."""
    return vitals.predicts and vitals.steps >= KNOWN_STEPS


def _changes(vitals: Vitals, batch: int, target: int) -> str:
    if _predicts(vitals):
        return "The same results but for rounding."
    said = f"an optimizer step every {round(batch / target)} batches keeps the step of {batch} samples."
    return f"If it trains, {said}" if vitals.predicts else formatting.sentence(said)


def _fixed_words(vitals: Vitals) -> str:
    return "parameters" if _predicts(vitals) else "parameters, gradients and the optimizer's state"


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
    cures = [
        Prescription("Read the data as it is needed instead of holding all of it (memory-mapped files)", Safety.BY_HAND)
    ]
    if (vitals.workers or 0) >= 2:
        cures.insert(0, fewer_workers(vitals.loader, (vitals.workers or 0) // 2))
    return Finding(
        rule="out-of-memory",
        headline=f"The machine ran out of memory: the run ended after {formatting.count(vitals.steps, 'step')}.",
        cost_share=None,
        kind="hint",
        evidence=tuple(evidence),
        prescriptions=tuple(cures),
        risk="The run did not finish; the same settings will fail again.",
    )
