"""Measures the fixed cost of one torch operation on this machine: the time that even the smallest takes.

A loop whose operations take hardly longer computes little: it goes from operation to operation, and a larger batch or a
compiled model has fewer of them for each sample. Measured when the run is over, by a graph of tiny layers whose
operations are counted as those of the user's loss are (`backward_graph`), so that both are the same kind of average.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import torch
from torch.nn import functional

from gpu_doctor.capture.describe.backward_graph import backward_graph

LAYERS: Final = 12
"""A linear layer and a ReLU have five operations in the graph: 60 in all, some 0.3 ms forth and back."""
ROUNDS: Final = 6


def timed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Fact `operation_s`, if the run had a backward; see `after_run.py`."""
    return {"operation_s": operation_s()} if facts.get("graph_operations") else {}


@cache
def operation_s(clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of a backward through tiny layers over its operations, once in a process: 3 ms, the least of some rounds.

    The least: a thread that takes the interpreter meanwhile makes a round longer, and nothing makes one shorter.

    The caller's modes are left as they are; nothing random is drawn, and only the layers made here get gradients.
    """
    spent = []
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast("cpu", enabled=False):
        made: dict[str, Any] = {"dtype": torch.float32, "device": "cpu", "requires_grad": True}
        weights = [torch.full((8, 8), 0.1, **made) for _ in range(LAYERS)]
        biases = [torch.zeros(8, **made) for _ in range(LAYERS)]
        operations = 1
        for _ in range(ROUNDS):
            out = torch.ones(1, 8, dtype=torch.float32, device="cpu")
            for weight, bias in zip(weights, biases, strict=True):
                out = functional.relu(functional.linear(out, weight, bias))
            loss = out.sum()
            operations = backward_graph(loss).operations
            begin = clock()
            torch.autograd.backward(loss)
            spent.append(clock() - begin)
    return min(spent) / operations
