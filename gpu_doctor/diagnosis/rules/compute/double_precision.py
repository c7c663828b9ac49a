"""The model computes in float64, which takes twice the time and memory of float32 or far more.

What it means
    Most parameters are float64. That is seldom intended: NumPy's arrays are float64, `torch.from_numpy` keeps that, and
    `model.double()` or `torch.set_default_dtype` then silences the error about two dtypes.

Why it costs you
    A number takes 8 bytes instead of 4, so memory and vector units handle half as many at a time. GPUs for computing
    centres (compute capability 6.0, 7.0, 8.0, 9.0) do float64 at half the rate of float32, others at 1/32 or 1/64 (CUDA
    C++ programming guide, throughput of native arithmetic instructions); most tensor cores have no float64 products.
    On a CPU half of what forward and backward take is counted, without what they take to go from operation to
    operation, which float32 does not shorten; both were timed in this run. On one machine (torch 2.13, 1 thread) nine
    models gained that or more (layers of 32 to 1024, convolutions, an LSTM, transformers), and single samples through
    layers of 16 nothing.

What to try
    float32 for the model and for the data, there once and not in the loop. GPU: not yet run on one.

When to leave it
    When the result needs 15 digits: solvers, ill-conditioned systems, checks of gradients.
"""

import math

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import gpu_pace, half_precision, passes
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.arithmetic import CORE_FLOPS, flops_at_most
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("forward_share", "backward_share", "model", "step_wall_s")
EXCLUDES = ("unaligned-shapes", "tf32-off")
"""They are about tensor cores, which come after float32."""

SPARED = 0.5
"""Of the arithmetic, at least: half the bytes, twice the numbers in a vector (see Why it costs you)."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where most parameters are float64 and their arithmetic takes its share of the time."""
    model, spent = vitals.model, _spent(vitals)
    if model is None or vitals.setup.dtype != "float64" or spent is None:
        return None
    cost = gpu_pace.at_most(vitals, SPARED * spent)
    doubles = model.dtype_bytes.get("float64", 0)
    return Finding(
        rule="double-precision",
        headline=f"The model computes in float64: about {formatting.share(cost)} of the time would be saved in "
        "float32.",
        cost_share=cost,
        evidence=(
            f"{formatting.size(doubles)} of {formatting.size(sum(model.dtype_bytes.values()))} of parameters are "
            "float64",
            _measured(vitals, spent),
        ),
        prescriptions=(
            Prescription(
                text="Compute in float32: convert model and data once, before the loop",
                safety=Safety.BY_HAND,
                code="model = model.float()  # and no torch.set_default_dtype(torch.float64)\n"
                "inputs = torch.from_numpy(array.astype(numpy.float32))  # or dtype=torch.float32 where it is made",
                changes=f"Numbers keep 24 bits instead of 53: compare the {half_precision.compared(vitals)}.",
            ),
        ),
    )


def _spent(vitals: Vitals) -> float | None:
    """Share of the wall-clock that goes into numbers; None where it cannot be told."""
    spent = passes.computing(vitals)
    if spent is None or vitals.on_gpu:
        return spent and vitals.gpu_busy_share  # its optimizer computes in float64 as well
    if vitals.operation_s is not None:
        return spent
    # How much goes from operation to operation is not known (nothing is trained, or in several rounds): no more than
    # the weights and a slow core give is counted.
    flops, calls = flops_at_most(vitals.setup), max((vitals.inputs and vitals.inputs.per_step) or 1.0, 1.0)
    return None if flops is None else min(spent, flops * calls / CORE_FLOPS / (vitals.step_wall_s or math.inf))


def _measured(vitals: Vitals, spent: float) -> str:
    """What the price is made of, as evidence."""
    if vitals.on_gpu:
        slow = "cards not made for float64 compute it at 1/32 or 1/64 of the rate: measure it"
        return f"the GPU computes {formatting.share(spent)} of the time, and {slow}"
    kinds = "forward" if vitals.predicts else "forward and backward"
    return f"the numbers of {kinds} take {formatting.share(spent)} of the time; half of it is counted: measure it"
