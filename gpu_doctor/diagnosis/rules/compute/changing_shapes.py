"""Rule for a loop in which torch.compile compiles again and again, or libraries prepare for ever new shapes."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.evidence import place, sizes
from gpu_doctor.diagnosis.rules.rule import NAMING_BAR, Cause, Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.compiling import Recompiled, recompiled_often, recompiled_share
from gpu_doctor.diagnosis.vitals.fields import Vitals

CAUSES: Final = (
    Cause(
        "recompiles",
        """
        torch.compile compiles the same function again and again while the loop runs.

        What it means
            Compiled code is valid only for the sizes, Python numbers, grad mode and objects that torch saw when it
            compiled. Before each call torch checks that these are the same, and compiles another version if they are
            not. After 8 versions of a function (`recompile_limit`) it gives up with a single warning, and further cases
            run uncompiled.

        Why it costs you
            Compiling takes from a tenth of a second to minutes, and nothing trains meanwhile. The cost is the time of
            compiling after the warm-up. If torch has given up, its cost is not known, and the finding is a hint.

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
            evaluation, which is little in a long run.
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
            The loop prepares again and again instead of once. The cost is the time that steps with a new shape took
            beyond later steps of the same size. This rule has not run on a real GPU yet.

        What to try
            Pad to a few lengths, or batch items of similar length. Compile with `dynamic=True`. Turn `cudnn.benchmark`
            off.

        In code
            # sick
            length = max(len(item) for item in items)
            # cured
            length = -(-max(len(item) for item in items) // 64) * 64  # the next multiple of 64

        When to leave it
            Leave it if the slow steps end soon because all shapes have been seen, for example after an epoch.
        """,
        ("run_s", "inputs"),
    ),
)

MANY: Final = 8
"""Fewest shapes that count as changing: torch.compile gives up after 8 recompilations of one function; a loader with a
partial last batch has 2."""
STILL_NEW: Final = 0.1
"""Part of the new shapes that must come in the later half of the inspected forwards: it is half if every batch has its
own shape, and none for buckets that have all been seen."""
KINDS: Final = {
    "sizes": re.compile(r"size mismatch|stride mismatch|rank mismatch|\.size\(\)|\.stride\(\)"),
    "mode": re.compile(r"GLOBAL_STATE|grad_mode|\.training\b"),
    "numbers": re.compile(r"==\s*-?[\d.]|==\s*'|is (True|False)|\bint\b"),
}
"""Reason why compiled code was no longer valid -> pattern in torch's message."""
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
    """Reports the time of repeated compiling; without it, the extra time of first steps with a shape."""
    return _recompiles(vitals) or _new_shapes(vitals)


def _recompiles(vitals: Vitals) -> Finding | None:
    """Reports functions that were compiled too often: with the time, or as a hint if torch gave up on one."""
    found, cost = recompiled_often(vitals.recompiled), recompiled_share(vitals.recompiled)
    given_up = [function for function in found if function.given_up]
    if vitals.step_wall_s is None or not found:
        return None
    priced = cost >= NAMING_BAR
    if not priced and not given_up:
        return None
    worst, listed = (found[0], given_up) if priced else (given_up[0], [])
    times = 1 + sum(not version.given_up for version in worst.versions)
    headline = f"torch.compile gave up on {_place(worst)} after {times} versions: it runs uncompiled."
    if priced:
        headline = f"Compiling {_place(worst)} {times} times takes {formatting.share(cost)} of the time."
    last, rest = worst.versions[-1], [function for function in found if function is not worst]
    guard = f" (line {last.guard_line}: {last.guard_text})" if last.guard_text else ""
    gave = [f"torch gave up on {_place(function)}: it runs uncompiled now" for function in listed]
    more = [f"also compiled again: {', '.join(_place(function) for function in rest[:3])}"] if rest else []
    kinds = Counter(_kind(version.reason) for version in worst.versions)
    return Finding(
        rule="recompiles",
        kind="lost" if priced else "hint",
        headline=headline,
        cost_share=cost if priced else None,
        evidence=(f"the compiled code was no longer valid: {last.reason}{guard}", *gave, *more),
        prescriptions=(CURES[kinds.most_common(1)[0][0]],),
        risk="" if priced else "Every further step runs uncompiled code.",
    )


def _place(function: Recompiled) -> str:
    """Returns a function's name and place: `forward (cell line 6)`."""
    first = function.versions[0]
    return f"{first.function} ({place(first.file)} line {first.line})" if first.file else first.function


def _kind(reason: str) -> str:
    """Returns the kind of a recompilation, a key of `CURES`, from torch's message."""
    return next((name for name, words in KINDS.items() if words.search(reason)), "objects")


def _new_shapes(vitals: Vitals) -> Finding | None:
    """Reports the extra time of steps with a new input shape, if new shapes still come late in the run."""
    inputs, run_s = vitals.inputs, vitals.run_s
    if inputs is None or not run_s or inputs.shapes < MANY or inputs.new_shape_steps < MANY:
        return None
    if inputs.new_late is not None and inputs.new_late < STILL_NEW * inputs.new_shape_steps:
        return None  # all shapes have been seen, and libraries are prepared
    if not inputs.new_shape_s > 0.0:  # also if it is NaN: there were no later steps to compare with
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
