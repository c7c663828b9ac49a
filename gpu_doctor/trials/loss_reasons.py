"""Explains losses that differ in a trial: a gain is kept only if the difference has a known reason.

How far the losses of this loop lie apart by themselves, the baselines of the trial show (`compare.losses`). What no
baseline can show, the knobs that were turned say.
"""

from __future__ import annotations

from gpu_doctor import formatting
from gpu_doctor.diagnosis import Safety
from gpu_doctor.recording import Setup, describe
from gpu_doctor.trials import knobs
from gpu_doctor.trials.compare.effect import Effect
from gpu_doctor.trials.compare.losses import BREAKS, DIFFERENT


def differs(effect: Effect) -> bool:
    """True if the losses differ by more than this loop's do by themselves."""
    return effect.loss_verdict == DIFFERENT


def breaks(effect: Effect) -> bool:
    """True if the losses became NaN or infinite on the candidate's side alone: such settings train nothing."""
    return effect.loss_verdict == BREAKS


def unusable(effect: Effect) -> bool:
    """True if settings are no answer to a search, however fast: their losses break, or differ for no known reason."""
    return breaks(effect) or (differs(effect) and not reason(effect, Setup()))


def reason(effect: Effect, setup: Setup) -> str:
    """Returns a clause on why losses that differ are no fault; '' if no reason is known.

    Args:
        effect: result of a trial.
        setup: setup found by a run of the same loop.
    """
    turned = {name: knobs.known(name) for name in _turned(effect)}
    changing = [name for name, knob in turned.items() if knob.safety is not Safety.SAFE and not knob.only_rounds]
    if changing:
        return f"{' and '.join(changing)} change{'s' if len(changing) == 1 else ''} the training"
    drawing = [name for name, knob in turned.items() if knob.draws_anew(setup)]
    if drawing:
        return f"{' and '.join(drawing)} draw{'s' if len(drawing) == 1 else ''} other random numbers"
    reasons = (knob.loss_reason(effect.settings.get(name), setup) for name, knob in turned.items())
    return next((reason for reason in reasons if reason), "")


def _turned(effect: Effect) -> list[str]:
    """Returns the knobs whose values differ between the two sides."""
    both = (effect.settings, effect.baseline_settings)
    return [name for name in {**both[1], **both[0]} if both[0].get(name) != both[1].get(name)]


def loss_note(effect: Effect, setup: Setup) -> str:
    """Says how the losses of a kept gain compare, and why; '' if there were none."""
    why = reason(effect, setup) if differs(effect) else ""
    return f"{effect.loss_words}: {why}" if why else effect.loss_words


def gain_left_to_user(effect: Effect) -> str:
    """Returns the sentence on a gain that is left to the user: its losses differ for no known reason."""
    turned = {name: effect.settings[name] for name in _turned(effect) if name in effect.settings}
    return (
        f"{describe(turned)} is {formatting.factor(effect.speedup)} as fast, but its {effect.loss_words}, for "
        "an unknown reason: compare the losses before you use it."
    )
