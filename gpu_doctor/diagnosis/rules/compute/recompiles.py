"""torch.compile compiles the same function again and again while the loop runs.

What it means
    What was compiled holds for what torch saw: sizes, Python numbers, the grad mode, the objects that are used. Before
    each call it checks that these are still the same, and compiles one more version where they are not. After 8
    versions of a function (`recompile_limit`) it gives up: what has no version yet runs as it is written, with a
    single warning.

Why it costs you
    Compiling takes from a tenth of a second to minutes, and nothing trains meanwhile. Priced are the seconds that it
    took after the warm-up. What a function loses after torch gives up
    on it is not known from this run, and not priced.

What to try
    Sizes that change: `torch._dynamo.mark_dynamic(x, 0)`, or `dynamic=True`; else pad to a few lengths. Numbers that
    change (an epoch, a weight of a loss) kept on a module: keep them in a tensor (`register_buffer`) and fill that.
    Functions made anew in each step: make them once, before the loop.

When to leave it
    One more version for sizes that vary, and one for evaluation, are made once and are no fault. When the
    recompilations end soon, a long run does not feel them.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.removed_work import without
from gpu_doctor.diagnosis.rules.evidence import place
from gpu_doctor.diagnosis.rules.rule import NAMING_BAR, Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.compiling import Recompiled
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("recompiled", "step_wall_s")
EXCLUDES = ("changing-shapes",)
"""Its seconds are those of the compiler where this rule finds any."""

FEW: Final = 2
"""Recompilations of a function that a sound loop has: one for sizes that vary (torch's own `automatic_dynamic_shapes`
makes it after the first change), one for the grad mode of an evaluation."""
SHAPES: Final = re.compile(r"size mismatch|stride mismatch|rank mismatch|\.size\(\)|\.stride\(\)")
MODE: Final = re.compile(r"GLOBAL_STATE|grad_mode|\.training\b")
NUMBER: Final = re.compile(r"==\s*-?[\d.]|==\s*'|is (True|False)|\bint\b")
_SIZES = Prescription(
    text="Tell torch which size changes, or pad to a few lengths",
    safety=Safety.BY_HAND,
    code="torch._dynamo.mark_dynamic(x, 0)  # before the compiled call: size 0 of x changes\n"
    "model = torch.compile(model, dynamic=True)  # or: all sizes may change",
)
_NUMBERS = Prescription(
    text="Keep the number that changes in a tensor",
    safety=Safety.BY_HAND,
    code='self.register_buffer("weight", torch.tensor(0.0))  # in __init__\n'
    "self.weight.fill_(epoch / epochs)  # instead of self.weight = epoch / epochs",
)
_MODES = Prescription(
    text="Call the compiled model in one mode: gradients on while it trains, an uncompiled one for the rest",
    safety=Safety.BY_HAND,
    code="compiled = torch.compile(model)  # for training\nwith torch.no_grad(): model(x)  # evaluation, uncompiled",
)
_OBJECTS = Prescription(
    text="Make the objects that the compiled function uses once, before the loop",
    safety=Safety.BY_HAND,
    code="step = torch.compile(train_step)  # before the loop, not in it",
)


def check(vitals: Vitals) -> Finding | None:
    """Fires where functions were compiled more often than sound loops need, priced after the warm-up, or given up."""
    often, cost = _often(vitals), again_share(vitals)
    lost = [one for one in often if one.given_up]
    if not often or (cost < NAMING_BAR and not lost):
        return None
    one = often[0] if cost >= NAMING_BAR else lost[0]
    times = sum(not each.given_up for each in one.versions)
    name, last = _place(one), one.versions[-1]
    priced = cost >= NAMING_BAR
    headline = (
        f"Compiling again takes {formatting.share(cost)} of the time: {name} was compiled {times + 1} times."
        if priced
        else f"torch.compile gave up on {name} after {times + 1} versions: it runs uncompiled."
    )
    asked = f" (line {last.guard_line}: {last.guard_text})" if last.guard_text else ""
    gave = [f"torch gave up on {_place(each)}: it runs uncompiled now" for each in lost if priced]
    return Finding(
        rule="recompiles",
        headline=headline,
        cost_share=cost,
        evidence=(f"it no longer held: {last.reason}{asked}", *gave, *_others(often, one)),
        prescriptions=(_cure(vitals, one, cost),),
        risk="" if priced else "Every further step runs without what compiling gains.",
    )


def again_share(vitals: Vitals) -> float:
    """Part of the wall-clock after the warm-up, 0..1, in which torch compiled what it had compiled often enough."""
    return min(sum(one.share for one in _often(vitals)), 1.0)


def _often(vitals: Vitals) -> list[Recompiled]:
    return [one for one in vitals.recompiled or () if len(one.versions) > FEW]


def _place(one: Recompiled) -> str:
    """`forward (cell line 6)`."""
    first = one.versions[0]
    return f"{first.function} ({place(first.file)} line {first.line})" if first.file else first.function


def _others(often: list[Recompiled], first: Recompiled) -> tuple[str, ...]:
    rest = [one for one in often if one is not first]
    return (f"so were {', '.join(_place(one) for one in rest[:3])}",) if rest else ()


def _cure(vitals: Vitals, one: Recompiled, cost: float) -> Prescription:
    """By the reason that torch gave most often; what can be gained is at most all of the compiling."""
    kinds = Counter(_kind(each.reason) for each in one.versions)
    chosen = {"sizes": _SIZES, "numbers": _NUMBERS, "mode": _MODES}.get(kinds.most_common(1)[0][0], _OBJECTS)
    if cost < NAMING_BAR:
        return chosen
    gain = without(vitals, cost, calls_per_step=len(one.versions) / max(vitals.measured_steps, 1))
    return chosen.expecting(replace(gain, low=1.0), at_most=True)


def _kind(reason: str) -> str:
    """`sizes`, `mode`, `numbers`, or `objects`, by torch's words."""
    for name, words in (("sizes", SHAPES), ("mode", MODE), ("numbers", NUMBER)):
        if words.search(reason):
            return name
    return "objects"
