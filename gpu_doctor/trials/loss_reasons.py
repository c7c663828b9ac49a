"""Why the losses of a trial may differ without a fault: with a reason a gain is kept and told, without it is not."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis import Safety
from gpu_doctor.recording import describe
from gpu_doctor.trials import knobs
from gpu_doctor.trials.compare.effect import Effect

DRAWN: Final = ("num_workers", "persistent_workers")
"""Knobs by which random numbers are drawn elsewhere: in workers, and by torch for its workers at an epoch's start."""
MASKED: Final = ("compile", "channels_last")
"""Knobs by which dropout draws other masks."""
REORDERED: Final = ("channels_last", "compile", "cudnn_benchmark", "fused_optimizer", "threads", "worker_threads")
"""Knobs that do the same arithmetic in another order."""
GROWN: Final = 3
"""The first step at which rounding may have grown beyond its own size. What is computed wrongly shows in the first loss
(the forward) or the second (the first update); of float32 sums in another order, the training of a small CNN under Adam
at 1e-3 made a difference beyond rounding from step 9 on, at 1e-2 from step 3 on (channels_last, CPU)."""


def differs(effect: Effect) -> bool:
    """Whether the losses differ by more than one rounding explains."""
    return effect.loss_verdict == "different"


def breaks(effect: Effect) -> bool:
    """Whether the losses became NaN or infinite on the candidate's side alone: such settings train nothing."""
    return effect.loss_drift is not None and not math.isfinite(effect.loss_drift)


def reason(effect: Effect, layers: Collection[str]) -> str:
    """Why losses that differ are no sign of a fault, without a capital or a full stop; '' where no reason is known.

    Args:
        effect: of a trial. layers: class names of the model's layers.
    """
    both = (effect.settings, effect.baseline_settings)
    turned = [name for name in {**both[1], **both[0]} if both[0].get(name) != both[1].get(name)]
    changing = [name for name in turned if knobs.known(name).safety is not Safety.SAFE]
    if changing:
        return f"{' and '.join(changing)} change{'s' if len(changing) == 1 else ''} the training"
    if any(name in DRAWN for name in turned):
        return "workers draw other random numbers (augmentation, shuffling)"
    if effect.loss_varies:
        return "runs without the change differ as much"
    if any("Dropout" in one for one in layers) and any(name in MASKED for name in turned):
        return "dropout draws other masks"
    if any(name in REORDERED for name in turned) and (effect.loss_first_step or 0) >= GROWN:
        return "sums in another order round differently, and the difference grows in training"
    return ""


def told(effect: Effect, layers: Collection[str]) -> str:
    """What became of the losses of a gain that is kept, and why; '' where there were none to compare."""
    why = reason(effect, layers) if differs(effect) else ""
    return f"{effect.loss_words}: {why}" if why else effect.loss_words


def left(effect: Effect) -> str:
    """A gain whose losses differ for no known reason, told for the hand."""
    turned = {name: value for name, value in effect.settings.items() if effect.baseline_settings.get(name) != value}
    return (
        f"{describe(turned)} is {formatting.factor(effect.speedup)} as fast, but its {effect.loss_words}, for "
        "an unknown reason: compare the losses before you use it."
    )
