"""What the trials proved: the one result that stands above the verdict, with how far its figure may be trusted.

A winner that was picked out of several is only the fastest so far. It is verified once it was measured again, as the
last trial of a treatment or a sweep does, or by trying it once more; what was the only trial was not picked.
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
    """The result of a case's trials; None where none was clearly faster than the code as written.

    Args:
        effects: of the case, oldest first.
        plan: what its last treatment arrived at; it knows why losses may differ.
        picking: a treatment or a sweep goes on, which will pick from its trials.
        price: dollars that an hour of the machine costs; what a verified result saves is told with it.
    """
    tried = [one for one in effects if not is_bound(one)]
    against = [one for one in tried if not one.baseline_settings and one.speedup is not None and one.outcome in CLEAN]
    newest = {describe(one.settings): one for one in against}
    kept = dict(plan.settings) if plan is not None and plan.verified else None
    faster = [one for one in newest.values() if _faster(one) and (not one.loss_changed or one.settings == kept)]
    alone = len(newest) == 1 and not picking and (plan is None or against[-1] not in plan.effects)
    sure = [one for one in faster if alone or one.verified or _measured_before(one, against)]
    best = max(sure or faster, key=lambda one: one.speedup or 0.0, default=None)
    return None if best is None else _told(best, bool(sure), len(newest), price)


def _faster(effect: Effect) -> bool:
    return effect.verdict == "faster" and effect.loss_verdict != BREAKS


def _measured_before(effect: Effect, against: Sequence[Effect]) -> bool:
    return any(one is not effect and one.settings == effect.settings and _faster(one) for one in against)


def _told(effect: Effect, sure: bool, tried: int, price: float | None) -> Result:
    gain = formatting.figure(effect.speedup, effect.low, effect.high)
    ends = formatting.interval(effect.low, effect.high, effect.speedup)
    of = f"the fastest of {formatting.grouped(tried)} tried, " if tried > 1 else ""
    how = "verified" if sure else f"{of}not measured again"
    text = f"{gain} faster with {clean(describe(effect.settings), 200)}, {how} ({ends})"
    if price is not None and sure and effect.low and effect.high and not effect.elsewhere:
        saved = " to ".join(formatting.dollars(price * (1.0 - 1.0 / end)) for end in (effect.low, effect.high))
        text += f": saves {saved} of every {formatting.dollars(price)}"
    parts = [sentence(clean(one)) for one in (effect.loss_words, effect.way) if one]
    where = [f"Measured on {clean(effect.device)}."] if effect.elsewhere else []
    return Result(heading(text), " ".join([*parts, *where]), effect.loss_changed, dict(effect.settings))
