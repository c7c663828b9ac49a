"""The model computes in float64, which takes twice the time and memory of float32 or far more.

What it means
    Most parameters are float64. That is seldom intended: NumPy's arrays are float64, `torch.from_numpy` keeps that, and
    `model.double()` or `torch.set_default_dtype` then silences the error about two dtypes.

Why it costs you
    A number takes 8 bytes instead of 4, so memory and vector units handle half as many at a time. GPUs for computing
    centres (compute capability 6.0, 7.0, 8.0, 9.0) do float64 at half the rate of float32, others at 1/32 or 1/64 (CUDA
    C++ programming guide, throughput of native arithmetic instructions); most tensor cores have no float64 products.
    Measured on a CPU (torch 2.13, 1 thread): 1.7 to 2.1 times as long from layers of 256 on, 1.2 to 1.3 times for
    layers of 64 to 128, no difference for layers of 32.

What to try
    float32 for the model and for the data, there once and not in the loop. GPU: not yet run on one.

When to leave it
    When the result needs 15 digits: solvers, ill-conditioned systems, checks of gradients.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import gpu_pace, half_precision
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.arithmetic import FLOPS_PER_WEIGHT, positions
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("forward_share", "backward_share", "model", "inputs", "parameters", "step_wall_s")
EXCLUDES = ("unaligned-shapes", "tf32-off")
"""They are about tensor cores, which come after float32."""

SPARED = 0.5
"""Of the arithmetic, at least: half the bytes, twice the numbers in a vector (see Why it costs you)."""
CORE_FLOPS = 18e9
"""Float64 operations a second of one core in layers of 256 to 1024 (measured here, torch 2.13, an EPYC with AVX2, whose
peak is 40e9): what a step's arithmetic takes."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where most parameters are float64 and their arithmetic takes its share of the time."""
    model, spent = vitals.model, _arithmetic(vitals)
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


def _measured(vitals: Vitals, spent: float) -> str:
    """What the price is made of, as evidence."""
    if vitals.on_gpu:
        slow = "cards not made for float64 compute it at 1/32 or 1/64 of the rate: measure it"
        return f"the GPU computes {formatting.share(spent)} of the time, and {slow}"
    return f"by the model's size, arithmetic takes {formatting.share(spent)} of the time; half is counted: measure it"


def _arithmetic(vitals: Vitals) -> float | None:
    """Share of the wall-clock that goes into arithmetic; None where it cannot be told."""
    if vitals.on_gpu:
        return vitals.gpu_busy_share if gpu_pace.kernels_set_it(vitals) else None
    inputs, parameters, step_s = vitals.inputs, vitals.parameters, vitals.step_wall_s
    if inputs is None or not inputs.shape or not parameters or not step_s:
        return None
    each = FLOPS_PER_WEIGHT if vitals.backward_share else FLOPS_PER_WEIGHT / 3.0  # a backward is two thirds of it
    flops = each * parameters * positions(inputs.shape, inputs.dtype) * (vitals.micro_batches or 1.0)
    # Of the cores' seconds, not of the wall: other programs stretch the one and not the other.
    cores_s = vitals.consumer_cpu_s or step_s * min(vitals.torch_threads or 1, max(vitals.usable_cores, 1.0))
    return min(flops / CORE_FLOPS / cores_s, vitals.passes_share)
