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
            Compiled code is valid for what torch saw: sizes, Python numbers, the grad mode, the objects in use. Before
            each call torch checks that these are the same, and compiles another version if they are not. After 8
            versions of a function (`recompile_limit`) it gives up with a single warning, and further cases run
            uncompiled.

        Why it costs you
            Compiling takes from a tenth of a second to minutes, and nothing trains meanwhile. The cost is the time of
            compiling after the warm-up. If torch has given up, nothing says what that costs, and the finding is a hint.

        What to try
            If a size changes, call `torch._dynamo.mark_dynamic(x, 0)` or compile with `dynamic=True`. If a number
            changes, keep it in a tensor. If a function is created anew in each step, create it before the loop.

        In code
            # sick
            self.weight = epoch / epochs  # read in forward: a new Python number in each epoch
            # cured
            self.register_buffer("weight", torch.tensor(0.0))  # in __init__
            self.weight.fill_(epoch / epochs)

        When to leave it
            Leave it if the recompilations end soon: torch compiles one more version for sizes that vary and one for
            evaluation, and a long run does not feel them.
        """,
        ("recompiled", "step_wall_s"),
    ),
    Cause(
        "changing-shapes",
        """
        The model keeps getting new input shapes, and the first step with each of them is slow.

        What it means
            Libraries prepare for a shape when they first see it: cuDNN times its algorithms (`cudnn.benchmark`),
            torch.compile compiles again, memory pools grow. If each batch is padded to its own longest item, nearly
            every batch has a new shape.

        Why it costs you
            The loop pays for the preparation again and again instead of once. The cost is the time that steps with a
            new shape took beyond later steps of the same size. This rule has not run on a real GPU yet.

        What to try
            Pad to a few lengths, or batch items of similar length. Compile with `dynamic=True`. Turn `cudnn.benchmark`
            off.

        In code
            # sick
            length = max(len(item) for item in items)
            # cured
            length = -(-max(len(item) for item in items) // 64) * 64  # the next multiple of 64

        When to leave it
            Leave it if the slow steps end soon, because after an epoch all shapes have been seen.
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
        "Call the compiled model for training only, and the uncompiled one for evaluation",
        Safety.BY_HAND,
        code="compiled = torch.compile(model)  # for training\nwith torch.no_grad(): model(x)  # evaluation",
    ),
    "objects": Prescription(
        "Create the objects that the compiled function uses once, before the loop",
        Safety.BY_HAND,
        code="step = torch.compile(train_step)  # before the loop, not in it",
    ),
}
PADDED: Final = Prescription(
    "Pad to a few lengths, or batch items of similar length",
    Safety.BY_HAND,
    code="length = -(-max(len(item) for item in items) // 64) * 64  # the next multiple of 64",
)
UNTUNED: Final = Prescription(
    "Let cuDNN choose its algorithms without timing them", Safety.BY_HAND, code="torch.backends.cudnn.benchmark = False"
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
    more = [f"also compiled again: {', '.join(_place(each) for each in rest[:3])}"] if rest else []
    kinds = Counter(_kind(each.reason) for each in one.versions)
    return Finding(
        rule="recompiles",
        kind="lost" if priced else "hint",
        headline=headline,
        cost_share=cost if priced else None,
        evidence=(f"the compiled code was no longer valid: {last.reason}{asked}", *gave, *more),
        prescriptions=(CURES[kinds.most_common(1)[0][0]],),
        risk="" if priced else "Every further step runs uncompiled code.",
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
            f"{formatting.seconds(inputs.new_shape_s)} longer than later steps of the same shape, or of a similar one",
        ),
        prescriptions=tuple(cures),
    )
