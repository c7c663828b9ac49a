"""The state of a loop that prepares for new shapes or functions again and again: by torch.compile, or by libraries."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.evidence import place, sizes
from gpu_doctor.diagnosis.rules.rule import NAMING_BAR, Cause, Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.compiling import Recompiled, again_share, often
from gpu_doctor.diagnosis.vitals.fields import Vitals

CAUSES: Final = (
    Cause(
        "recompiles",
        """
        torch.compile compiles the same function again and again while the loop runs.

        What it means
            Compiled code holds for what torch saw: sizes, Python numbers, the grad mode, the objects in use. Before
            each call it checks that these are still the same, and compiles one more version where they are not. After 8
            versions of a function (`recompile_limit`) it gives up, with a single warning: what has no version yet runs
            as it is written.

        Why it costs you
            Compiling takes from a tenth of a second to minutes, and nothing trains meanwhile. The cost is the seconds
            of compiling after the warm-up. What a function loses after torch gives up is not known.

        What to try
            Sizes that change: `torch._dynamo.mark_dynamic(x, 0)`, or `torch.compile(model, dynamic=True)` instead of
            `torch.compile(model)`. Numbers that change: keep them in a tensor, `self.weight.fill_(epoch / epochs)`
            instead of `self.weight = epoch / epochs`. Functions made anew in each step: make them before the loop.

        When to leave it
            One more version for sizes that vary, and one for evaluation, are made once. When the recompilations end
            soon, a long run does not feel them.
        """,
        ("recompiled", "step_wall_s"),
    ),
    Cause(
        "changing-shapes",
        """
        The model keeps getting new input shapes, and the first step with each of them is slow.

        What it means
            Libraries prepare for a shape when they first see it: cuDNN tries its algorithms (`cudnn.benchmark`),
            torch.compile compiles again, memory pools grow. Batches that are padded to their own longest item have a
            new shape nearly always.

        Why it costs you
            The preparation is paid for again and again instead of once. The cost is what steps with a new shape took
            longer than later steps of the same size. GPU: not yet run on one.

        What to try
            Pad to a few lengths: `length = -(-longest // 64) * 64` instead of `length = longest`; or batch items of
            like length. `dynamic=True` for torch.compile. Turn `cudnn.benchmark` off.

        When to leave it
            When the slow firsts end soon: all shapes have been seen after an epoch.
        """,
        ("run_s", "inputs"),
    ),
)

MANY: Final = 8
"""Shapes from which on they change: torch.compile gives up after 8 recompilations of one function; a loader with a
partial last batch has 2."""
STILL_NEW: Final = 0.1
"""At least so much of the new shapes come in the later half of the forwards looked at: half where every batch has its
own, none of buckets that have all been seen."""
KINDS: Final = {
    "sizes": re.compile(r"size mismatch|stride mismatch|rank mismatch|\.size\(\)|\.stride\(\)"),
    "mode": re.compile(r"GLOBAL_STATE|grad_mode|\.training\b"),
    "numbers": re.compile(r"==\s*-?[\d.]|==\s*'|is (True|False)|\bint\b"),
}
"""Why compiled code no longer held, by torch's words."""
DYNAMIC: Final = Prescription(
    "Compile for sizes that vary", Safety.BY_HAND, code="model = torch.compile(model, dynamic=True)"
)
CURES: Final = {
    "sizes": Prescription(
        "Tell torch which size changes, or pad to a few lengths",
        Safety.BY_HAND,
        code="torch._dynamo.mark_dynamic(x, 0)  # before the compiled call: size 0 of x changes\n"
        "model = torch.compile(model, dynamic=True)  # or: all sizes may change",
    ),
    "numbers": Prescription(
        "Keep the number that changes in a tensor",
        Safety.BY_HAND,
        code='self.register_buffer("weight", torch.tensor(0.0))  # in __init__\n'
        "self.weight.fill_(epoch / epochs)  # instead of self.weight = epoch / epochs",
    ),
    "mode": Prescription(
        "Call the compiled model in one mode: gradients on while it trains, an uncompiled one for the rest",
        Safety.BY_HAND,
        code="compiled = torch.compile(model)  # for training\nwith torch.no_grad(): model(x)  # evaluation",
    ),
    "objects": Prescription(
        "Make the objects that the compiled function uses once, before the loop",
        Safety.BY_HAND,
        code="step = torch.compile(train_step)  # before the loop, not in it",
    ),
}
PADDED: Final = Prescription(
    "Pad to a few lengths, or batch items of like length",
    Safety.BY_HAND,
    code="length = -(-max(len(item) for item in items) // 64) * 64  # the next multiple of 64",
)
UNTUNED: Final = Prescription(
    "Let cuDNN choose without trying", Safety.BY_HAND, code="torch.backends.cudnn.benchmark = False"
)


def check(vitals: Vitals) -> Finding | None:
    """Reports the compiler's seconds where it compiled again and again; else what first steps with a shape took."""
    return _recompiles(vitals) or _new_shapes(vitals)


def _recompiles(vitals: Vitals) -> Finding | None:
    found, cost = often(vitals.recompiled), again_share(vitals.recompiled)
    lost = [one for one in found if one.given_up]
    if vitals.step_wall_s is None or not found:
        return None
    priced = cost >= NAMING_BAR
    if not priced and not lost:
        return None
    one, told = (found[0], lost) if priced else (lost[0], [])
    times = 1 + sum(not each.given_up for each in one.versions)
    headline = f"torch.compile gave up on {_place(one)} after {times} versions: it runs uncompiled."
    if priced:
        headline = f"Compiling {_place(one)} {times} times takes {formatting.share(cost)} of the time."
    last, rest = one.versions[-1], [each for each in found if each is not one]
    asked = f" (line {last.guard_line}: {last.guard_text})" if last.guard_text else ""
    gave = [f"torch gave up on {_place(each)}: it runs uncompiled now" for each in told]
    more = [f"so were {', '.join(_place(each) for each in rest[:3])}"] if rest else []
    kinds = Counter(_kind(each.reason) for each in one.versions)
    return Finding(
        rule="recompiles",
        kind="lost" if priced else "hint",
        headline=headline,
        cost_share=cost if priced else None,
        evidence=(f"it no longer held: {last.reason}{asked}", *gave, *more),
        prescriptions=(CURES[kinds.most_common(1)[0][0]],),
        risk="" if priced else "Every further step runs without what compiling gains.",
    )


def _place(one: Recompiled) -> str:
    """`forward (cell line 6)`."""
    first = one.versions[0]
    return f"{first.function} ({place(first.file)} line {first.line})" if first.file else first.function


def _kind(reason: str) -> str:
    return next((name for name, words in KINDS.items() if words.search(reason)), "objects")


def _new_shapes(vitals: Vitals) -> Finding | None:
    inputs, run_s = vitals.inputs, vitals.run_s
    if inputs is None or not run_s or inputs.shapes < MANY or inputs.new_shape_steps < MANY:
        return None
    if inputs.new_late is not None and inputs.new_late < STILL_NEW * inputs.new_shape_steps:
        return None  # all shapes have been seen, and are prepared for
    if not inputs.new_shape_s > 0.0:  # NaN: there was nothing to compare
        return None
    cost = min(inputs.new_shape_s / run_s, 1.0)
    convolves = any("Conv" in kind for kind in vitals.setup.layers) or bool(vitals.model and vitals.model.convolutions)
    cures = [PADDED]
    cures += [DYNAMIC] if vitals.compiled else []
    cures += [UNTUNED] if convolves and vitals.setup.flags.get("cudnn_benchmark") else []
    return Finding(
        rule="changing-shapes",
        kind="lost",
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
