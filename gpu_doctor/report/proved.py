"""The proven result of the trials, which stands above the verdict and says whether its figure is verified.

A winner picked out of several trials is only the fastest so far. It is verified once it was measured again, by the last
trial of a treatment or a sweep or by a repeated trial. A result that was the only trial was not picked and needs no
second measurement.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpu_doctor import formatting
from gpu_doctor.formatting import clean, sentence
from gpu_doctor.labels import heading
from gpu_doctor.recording import CLEAN, describe
from gpu_doctor.report.contract import Result
from gpu_doctor.trials import Plan, is_bound
from gpu_doctor.trials.compare import BREAKS, Effect


def proved(
    effects: Sequence[Effect], plan: Plan | None = None, picking: bool = False, price: float | None = None
) -> Result | None:
    """Returns the result of a case's trials, or None if none was clearly faster than the code as written.

    Args:
        effects: effects of the case, oldest first.
        plan: plan of the last treatment; the losses of its settings may differ.
        picking: True while a treatment or a sweep runs, which will pick from its trials.
        price: cost of the machine in dollars per hour, used to state what a verified result saves.
    """
    tried = [effect for effect in effects if not is_bound(effect)]
    against = [
        effect
        for effect in tried
        if not effect.baseline_settings and effect.speedup is not None and effect.outcome in CLEAN
    ]
    newest = {describe(effect.settings): effect for effect in against}
    plan_settings = dict(plan.settings) if plan is not None and plan.verified else None
    faster = [
        effect
        for effect in newest.values()
        if _faster(effect) and (not effect.loss_changed or effect.settings == plan_settings)
    ]
    alone = len(newest) == 1 and not picking and (plan is None or against[-1] not in plan.effects)
    sure = [effect for effect in faster if alone or effect.verified or _measured_before(effect, against)]
    best = max(sure or faster, key=lambda effect: effect.speedup or 0.0, default=None)
    return None if best is None else _result(best, bool(sure), len(newest), price)


def _faster(effect: Effect) -> bool:
    return effect.verdict == "faster" and effect.loss_verdict != BREAKS


def _measured_before(effect: Effect, against: Sequence[Effect]) -> bool:
    return any(other is not effect and other.settings == effect.settings and _faster(other) for other in against)


def _result(effect: Effect, sure: bool, tried: int, price: float | None) -> Result:
    gain = formatting.figure(effect.speedup, effect.low, effect.high)
    ends = formatting.interval(effect.low, effect.high, effect.speedup)
    of = f"the fastest of {formatting.grouped(tried)} tried, " if tried > 1 else ""
    how = "verified" if sure else f"{of}not measured again"
    text = f"{gain} faster with {clean(describe(effect.settings), 200)}, {how} ({ends})"
    if price is not None and sure and effect.low and effect.high and not effect.elsewhere:
        saved = " to ".join(formatting.dollars(price * (1.0 - 1.0 / end)) for end in (effect.low, effect.high))
        text += f": saves {saved} of every {formatting.dollars(price)}"
    parts = [sentence(clean(sentence_part)) for sentence_part in (effect.loss_words, effect.way) if sentence_part]
    where = [f"Measured on {clean(effect.device)}."] if effect.elsewhere else []
    return Result(heading(text), " ".join([*parts, *where]), effect.loss_changed, dict(effect.settings))
