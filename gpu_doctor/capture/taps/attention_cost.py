"""Measures how much longer attention by separate operations takes on this CPU than the fused kernel for the same shape.

How that compares depends on the length of the sequences, the size of the heads, the threads and the machine; products
alone do not tell: what takes longer are passes over the attention weights, of which each takes about as long whatever
the size of the heads (12 to 24 ns a weight for heads of 8 to 64, by CPU time). So both ways are timed, forward and
backward, when the run is over: with the shapes of the run, on as many of its samples and heads as take some ms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, Final

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from gpu_doctor.capture.taps import both_ways
from gpu_doctor.capture.taps.both_ways import CLOCKS, Clocks
from gpu_doctor.recording.setup import AttentionCalls

WEIGHTS: Final = 1 << 18
"""Attention weights (tokens by tokens, of so many samples and heads) that are computed for it, at most: 1 MiB, some
5 ms; each thread gets its head at least."""
MOST_WEIGHTS: Final = 1 << 23
"""Where one head of each thread is more, it is not timed: it would take a second."""
DROPPED: Final = 0.1
"""What share is dropped does not change the time."""
KINDS: Final = 2


def timed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Fact `attention_longer_s`, where the run computed attention so; see `after_run.py`."""
    calls = facts.get("attention_calls") or ()
    slow = [one for one in calls if one.kernel == "math" and one.head_size is not None][:KINDS]
    longer = [found for one in slow if (found := longer_s(one)) is not None]
    if not slow or len(longer) < len(slow):
        return {}
    return {"attention_longer_s": tuple(map(sum, zip(*longer, strict=True)))}


def longer_s(calls: AttentionCalls, clocks: Clocks = CLOCKS) -> tuple[float, ...] | None:
    """Seconds, least, median and most, that a forward and backward of these calls take longer than by the fused kernel.

    None where they are too large to be tried.
    """
    pairs, weights = calls.samples * calls.heads, calls.queries * calls.keys
    tried = max(min(pairs, WEIGHTS // max(weights, 1)), min(pairs, torch.get_num_threads()), 1)
    if tried * weights > MOST_WEIGHTS:
        return None
    with both_ways.as_in_training():
        given = [_tensors(tried, tokens, calls) for tokens in (calls.queries, calls.keys, calls.keys)]
        mask = torch.zeros(calls.queries, calls.keys, dtype=given[0].dtype, device="cpu") if calls.masked else None
        slow, fused = (partial(_timed, given, mask, drops, clocks[1]) for drops in (calls.drops, None))
        return both_ways.longer_s(slow, fused, clocks, calls.calls * pairs / tried)


def _tensors(pairs: int, tokens: int, calls: AttentionCalls) -> torch.Tensor:
    dtype = getattr(torch, calls.dtype)
    return torch.full((1, pairs, tokens, calls.head_size or 1), 0.1, dtype=dtype, device="cpu", requires_grad=True)


def _timed(given: list[torch.Tensor], mask: Any, drops: bool | None, clock: Callable[[], float]) -> float:
    """A forward and its backward, by separate operations with or without dropout; None: by the fused kernel."""
    with nullcontext() if drops is None else sdpa_kernel(SDPBackend.MATH):
        query, key, value = given
        begin = clock()
        out = scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=DROPPED if drops else 0.0)
        torch.autograd.grad(out, given, out)
        return clock() - begin
