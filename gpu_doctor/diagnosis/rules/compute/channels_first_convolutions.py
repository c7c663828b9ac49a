"""Half-precision convolutions run on tensors stored channels first, which tensor cores take channels last.

What it means
    Images and weights are stored N, C, H, W. Tensor cores work on N, H, W, C: cuDNN transposes before and after, or
    takes a slower kernel.

Why it costs you
    PyTorch's tutorial on the layout reports 8 to 35 % for convolutional networks with mixed precision.

What to try
    `model.to(memory_format=torch.channels_last)` and the same for the inputs; the values stay the same. A trial
    measures it. GPU: not yet run on one.

When to leave it
    When most of the work is in other layers: a transformer that cuts its image up by one convolution, and 1D and 3D
    convolutions, which this layout is not for. When the model reshapes or views its features in ways that need channels
    first: each such place copies.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import gpu_pace, half_precision
from gpu_doctor.diagnosis.rules.compute import cudnn_not_tuned
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.machine.cards import TENSOR_CORES

NEEDS = ("gpu_busy_share", "capability", "model")
EXCLUDES = ("cudnn-not-tuned",)
"""The same kernels: their layout decides which algorithms there are to choose from, so it comes first, and timing them
second."""

GAIN = 1.08
"""Price only: the low end of the 8 to 35 % that PyTorch's channels-last tutorial reports."""
STORED = 0.5
"""From this share of convolutions on the model has been converted: those with one input channel cannot be told."""
OTHERS = (*half_precision.CUBLAS, "Conv1d", "Conv3d", "ConvTranspose1d", "ConvTranspose3d", "LSTM", "GRU")
"""Layers of the heavy kind whose kernels are the same in either layout."""


def check(vitals: Vitals) -> Finding | None:
    """Fires on a busy GPU with tensor cores that runs mostly half-precision 2D convolutions channels first."""
    busy, model, inputs = vitals.gpu_busy_share, vitals.model, vitals.inputs
    if busy is None or model is None or not vitals.at_least(TENSOR_CORES):
        return None
    if vitals.dtype not in half_precision.HALVES or model.convolutions <= vitals.layers(*OTHERS):
        return None
    if model.channels_last >= STORED * model.convolutions or (inputs is not None and inputs.channels_last):
        return None
    if not gpu_pace.kernels_set_it(vitals):
        return None
    cost = gpu_pace.at_most(vitals, busy * (1.0 - 1.0 / GAIN))
    return Finding(
        rule="channels-first-convolutions",
        headline=f"Convolutions run channels first: that memory layout costs at least {formatting.share(cost)} of "
        "the time.",
        cost_share=cost,
        evidence=(
            f"{model.convolutions - model.channels_last} of {model.convolutions} 2D convolutions in {vitals.dtype} "
            "have weights stored channels first",
            f"the GPU is busy {formatting.share(busy)} of the time; estimated for a GPU step "
            f"{formatting.forecast(GAIN)} as fast, the low end of what is reported: measure it",
        ),
        prescriptions=(
            Prescription(
                text="Store model and images channels last",
                safety=Safety.SAFE,
                settings={"channels_last": True},
                code="model = model.to(memory_format=torch.channels_last)\n"
                "images = images.to(memory_format=torch.channels_last)",
            ),
            *((cudnn_not_tuned.TIMED,) if cudnn_not_tuned.check(vitals) is not None else ()),
        ),
    )
