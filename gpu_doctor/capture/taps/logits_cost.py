"""Measures how much longer logits and their loss take for all positions than for those that the loss reads.

How much of that is arithmetic and how much are passes over the logits depends on the classes, the width and the
machine. So both are computed when the run is over, forward and backward, for as many positions and classes as take some
ten ms: what is saved grows with either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from gpu_doctor.capture.taps import both_ways
from gpu_doctor.capture.taps.both_ways import CLOCKS, Clocks
from gpu_doctor.recording.setup import UnusedLogits

LEAST_UNUSED: Final = 0.1
"""Part of the positions: what less than this saves is lost in the doubt of both times."""
LOGITS: Final = 1 << 22
"""Numbers that are computed for it, at most: 16 MiB, more than the caches of a core."""
PRODUCTS: Final = 1 << 30
"""Multiplications in a forward of it, at most: some 50 ms."""
IGNORED: Final = -100


def timed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The figure in fact `unused_logits`, where the run computed such logits; see `after_run.py`."""
    found = facts.get("unused_logits")
    if not isinstance(found, UnusedLogits) or found.unused < LEAST_UNUSED:
        return {}
    return {"unused_logits": replace(found, longer_s=longer_s(found))}


def longer_s(one: UnusedLogits, clocks: Clocks = CLOCKS) -> tuple[float, ...]:
    """Seconds, least, median and most, that the positions of a backward take longer than those that are used."""
    rows = max(one.rows // one.looked_at, 1)
    classes = max(min(one.classes, PRODUCTS // one.width), 2)
    tried = max(min(rows, LOGITS // classes, PRODUCTS // (classes * one.width)), 1)
    behind = min(one.behind, tried)
    tried -= tried % behind
    used = max(round(tried * (1.0 - one.unused)), 1)
    made: dict[str, Any] = {"dtype": getattr(torch, one.dtype), "device": "cpu"}
    at = torch.arange(used, device="cpu") * tried // used
    target = torch.full((tried,), IGNORED, device="cpu").index_fill(0, at, 0)
    with both_ways.as_in_training():
        inputs = torch.full((tried, one.width), 0.1, requires_grad=True, **made)
        weight = torch.full((classes, one.width), 0.1, requires_grad=one.sides > 1, **made)
        bias = torch.zeros(classes, requires_grad=one.sides > 1, **made) if one.bias else None

        def whole() -> Tensor:
            logits = functional.linear(inputs, weight, bias)
            if one.told_by == "picked logits":
                return functional.cross_entropy(logits[at].float(), target[at])
            if behind > 1:
                samples = logits.view(-1, behind, classes).transpose(1, 2)
                return functional.cross_entropy(samples.float(), target.view(-1, behind), ignore_index=IGNORED)
            return functional.cross_entropy(logits.float(), target, ignore_index=IGNORED)

        def picked() -> Tensor:
            return functional.cross_entropy(functional.linear(inputs[at], weight, bias).float(), target[at])

        learned = [side for side in (inputs, weight, bias) if side is not None and side.requires_grad]
        slow, fast = (both_ways.passes(way, learned, clocks) for way in (whole, picked))
        return both_ways.longer_s(slow, fast, clocks, rows * one.classes / (tried * classes))
