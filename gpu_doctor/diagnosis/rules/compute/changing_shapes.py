"""The model keeps getting new input shapes, and the first step with each of them is slow.

What it means
    Libraries prepare for a shape when they first see it: cuDNN tries its algorithms (`cudnn.benchmark`), torch.compile
    compiles again, memory pools grow. Batches that are padded to their own longest item have a new shape nearly always.

Why it costs you
    That preparation is paid for again and again instead of once.

What to try
    Pad to a few lengths (multiples of 64, or buckets of like length); `dynamic=True` for torch.compile; with
    `cudnn.benchmark`, turn it off. GPU: not yet run on one.

When to leave it
    When the slow firsts end soon: all shapes have been seen after an epoch.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.evidence import sizes
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("run_s", "inputs")

MANY = 8
"""Shapes from which on they change: torch.compile gives up after 8 recompilations of one function (its
`recompile_limit`); a loader with a partial last batch has 2."""

STILL_NEW = 0.1
"""Part of the new shapes that come in the later half of the forwards looked at, at least: half where every batch has
its own, a quarter where each comes twice, none of buckets that have all been seen."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where steps with a new shape took measurably longer than others with an input of the same size."""
    inputs, run_s = vitals.inputs, vitals.run_s
    if inputs is None or not run_s or inputs.shapes < MANY or inputs.new_shape_steps < MANY:
        return None
    if inputs.new_late is not None and inputs.new_late < STILL_NEW * inputs.new_shape_steps:
        return None  # all shapes have been seen, and are prepared for
    if not inputs.new_shape_s > 0.0:  # NaN: there was nothing to compare
        return None
    cost = min(inputs.new_shape_s / run_s, 1.0)
    model = vitals.setup.model
    padded = Prescription(
        text="Pad to a few lengths, or group items of like length into a batch",
        safety=Safety.BY_HAND,
        code="length = -(-max(len(item) for item in items) // 64) * 64  # the next multiple of 64",
    )
    cures = [padded.saving_at_most(cost) if cost < 1.0 else padded]
    if vitals.compiled:
        cures.append(
            Prescription(
                text="Compile for sizes that vary",
                safety=Safety.BY_HAND,
                code="model = torch.compile(model, dynamic=True)",
            )
        )
    convolves = any("Conv" in kind for kind in vitals.setup.layers) or (model is not None and model.convolutions)
    if convolves and vitals.setup.flags.get("cudnn_benchmark"):
        cures.append(
            Prescription(
                text="Let cuDNN choose without trying",
                safety=Safety.BY_HAND,
                code="torch.backends.cudnn.benchmark = False",
            )
        )
    return Finding(
        rule="changing-shapes",
        headline=f"New input shapes cost {formatting.share(cost)} of the time: the first step with each is slow.",
        cost_share=cost,
        evidence=(
            f"{'at least ' if inputs.shapes >= 64 else ''}{inputs.shapes} shapes in {inputs.looked_at} inspected "
            f"forward passes, {sizes(inputs.shape)} most often",
            f"{inputs.new_shape_steps} forward passes had a new shape; together their steps took "
            f"{formatting.seconds(inputs.new_shape_s)} longer than later steps of the same shape, or of one alike",
        ),
        prescriptions=tuple(cures),
    )
