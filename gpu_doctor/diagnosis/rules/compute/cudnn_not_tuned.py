"""Convolutions of one fixed shape run with the algorithm that cuDNN guesses, not with the fastest it has.

What it means
    `torch.backends.cudnn.benchmark` is off: cuDNN picks its algorithms by a rule of thumb. With it on, each new shape
    is timed once with all of them.

Why it costs you
    For some shapes the guess is far from the fastest, and every step pays for it.

What to try
    `torch.backends.cudnn.benchmark = True`, once before training.

When to leave it
    When input shapes change from batch to batch (each new shape is timed again), or when runs must repeat bit for bit.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import gpu_pace
from gpu_doctor.diagnosis.rules.half_precision import CUBLAS
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.arithmetic import CONVOLUTIONS
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("gpu_busy_share", "inputs")

ASSUMED_GAIN = 1.1
"""Price only: PyTorch's tuning guide recommends it without a figure; a tenth is what such reports begin with."""
LOOKED_AT = 5
"""Fewer inputs looked at do not say that the shape is fixed."""
TIMED = Prescription(
    text="Let cuDNN time its algorithms once",
    safety=Safety.SAFE,
    settings={"cudnn_benchmark": True},
    code="torch.backends.cudnn.benchmark = True",
)


def check(vitals: Vitals) -> Finding | None:
    """Fires on a GPU that is busy with convolutions of one shape, with the benchmark switched off."""
    setup, busy, inputs = vitals.setup, vitals.gpu_busy_share, vitals.inputs
    if busy is None or not setup.on_gpu or inputs is None or inputs.shapes != 1 or inputs.looked_at < LOOKED_AT:
        return None
    if setup.flags.get("cudnn_benchmark") is not False or setup.flags.get("deterministic"):
        return None
    convolutions = vitals.layers(*CONVOLUTIONS)
    if convolutions <= vitals.layers(*CUBLAS) or not gpu_pace.kernels_set_it(vitals):
        return None
    cost = gpu_pace.at_most(vitals, busy * (1.0 - 1.0 / ASSUMED_GAIN))
    return Finding(
        rule="cudnn-not-tuned",
        headline=f"cuDNN guesses its convolution algorithms: timing them may save about {formatting.share(cost)} of "
        "the time.",
        cost_share=cost,
        evidence=(
            f"{convolutions} convolutions, cudnn.benchmark off, every input of shape {inputs.shape}; the GPU is busy "
            f"{formatting.share(busy)} of the time",
            f"estimated for a GPU step {formatting.forecast(ASSUMED_GAIN)} as fast: measure it",
        ),
        prescriptions=(TIMED,),
    )
