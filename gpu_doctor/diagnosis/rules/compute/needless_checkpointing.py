"""Activation checkpointing computes parts of the forward twice, though memory has room for what it saves.

What it means
    A block under `torch.utils.checkpoint` (or `gradient_checkpointing=True`) keeps no activations: the backward
    computes its forward again. Memory has room for all of them.

Why it costs you
    About one more forward of those parts in every step. Measured on a CPU (torch 2.13, 1 thread) with every layer
    checkpointed: a step took 1.3 to 1.7 times as long (convolutions 1.3, linear layers 1.4 to 1.5, a transformer 1.5 to
    1.7), and 4 times with layers of 32 numbers.

What to try
    Turn it off, or off for some of the layers: each one that keeps its activations saves its own second forward. The
    result is the same.

When to leave it
    When longer sequences or larger batches than those of this run are to fit, or a smaller card. What it would take is
    estimated from above, from the results of all operations of one backward. GPU: not yet run on one.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import gpu_pace
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = (
    *("forward_share", "backward_share", "run_s", "gpu_forward_share"),
    *("peak_share", "memory_total_bytes"),
)
CPU_NEEDS = ("forward_share", "backward_share", "run_s", "host_memory_available_bytes", "host_memory_total_bytes")

KEPT = 2.0
"""What autograd keeps is this many times the results of all operations, at most. It keeps inputs and results of an
operation, an input is another one's result, and a tensor is kept once: so all results, and as much again for what an
operation makes for itself (masks, statistics, copies in one piece). Models of linear layers, attention and convolutions
kept 0.5 to 1.3 times (torch 2.13)."""
FREE_AFTERWARDS = 0.1
"""Of the memory, that shall stay free: above 90 % near-out-of-memory warns."""
MOST_SHAPES = 2
"""With more shapes of inputs than whole batches and a last one, one backward does not tell what the others keep."""
RECURRENT = ("LSTM", "GRU", "RNN")
"""Layers that keep much more than their results (17 times was measured)."""
GAINS = (0.8, 1.2, 1.6)
"""Low, usual, high: so many times the price was saved (one machine's CPU, torch 2.13: 0.85 to 1.5 times). Random states
are kept and put back as well, and memory is asked for twice; with parts of a few microseconds that takes the most (2.7
times). What is expected of the cure rests on this, not the price, which is of the run's own seconds."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where the backward recomputes and all that was left out would fit."""
    again, share, spare = vitals.setup.recomputation, _share(vitals), _spare_bytes(vitals)
    made = vitals.setup.graph_result_bytes
    if again is None or not share or spare is None or not vitals.steps:
        return None
    if made is None or again.result_bytes is None:
        return None
    shapes = vitals.inputs.shapes if vitals.inputs is not None else 0
    if shapes > MOST_SHAPES or vitals.layers(*RECURRENT):
        return None
    wanted = KEPT * (made + again.result_bytes)
    if wanted > spare:
        return None
    low, usual, high = (share * part for part in GAINS)
    return Finding(
        rule="needless-checkpointing",
        headline=f"Activation checkpointing repeats the forward for {formatting.share(share)} of the time, though "
        "memory has room.",
        cost_share=share,
        evidence=(
            f"{formatting.average(again.times / vitals.steps)} blocks are computed again in a step",
            f"keeping all activations takes {formatting.size(wanted)} at most, by the results of all operations; "
            f"{formatting.size(spare)} are free at the peak, with a tenth of the memory set aside",
        ),
        prescriptions=(
            Prescription(
                text="Turn activation checkpointing off",
                safety=Safety.BY_HAND,
                code="y = block(x)  # instead of checkpoint(block, x, use_reentrant=False)\n"
                "model.gradient_checkpointing_disable()  # of a model that a library checkpoints",
                changes="The same training; more memory is used.",
            ).saving(low, usual, high),
        ),
    )


def _share(vitals: Vitals) -> float | None:
    """Part of the wall-clock that the second forwards take.

    On a GPU the host's seconds only tell which part of the launching they are, beside the first forwards; the device's
    clock tells how long the forward takes. Where the host sets the loop's pace, its launching is what counts.
    """
    again, forward, backward = vitals.setup.recomputation, vitals.forward_share, vitals.backward_share
    if again is None or not vitals.run_s or not forward or backward is None:
        return None
    launched = again.wall_s / vitals.run_s
    if not vitals.on_gpu or not gpu_pace.kernels_set_it(vitals):
        return gpu_pace.at_most(vitals, min(launched, backward))
    if vitals.gpu_forward_share is None:
        return None
    return gpu_pace.at_most(vitals, vitals.gpu_forward_share * min(launched / forward, 1.0))


def _spare_bytes(vitals: Vitals) -> float | None:
    """Bytes that were free at the fullest moment, beyond the part that shall stay free."""
    if not vitals.on_gpu:
        free, total = vitals.host_memory_available_bytes, vitals.host_memory_total_bytes
        return None if free is None or total is None else free - FREE_AFTERWARDS * total
    total, peak = vitals.memory_total_bytes, vitals.peak_share
    if total is None or peak is None:
        return None
    return total * (1.0 - FREE_AFTERWARDS - peak) - vitals.beside_bytes
