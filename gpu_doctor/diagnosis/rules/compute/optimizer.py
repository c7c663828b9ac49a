"""The optimizer takes a large part of the step, in many small operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import gpu_pace
from gpu_doctor.diagnosis.rules.rule import Cause, Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.recording.setup import OptimizerFacts

UNFUSED: Final = Cause(
    name="unfused-optimizer",
    needs=("optimizer_share", "optimizer_facts"),
    page="""\
The optimizer runs many small operations where torch has one fused kernel.

What it means
    With `fused=True`, Adam, AdamW, SGD and Adagrad update all parameters with one kernel instead of a dozen operations
    for each. torch does not choose it by itself: on a CPU it loops over the parameters, on a GPU it launches grouped
    operations. Each parameter group is stepped separately. With hundreds of groups, such as one per parameter, nothing
    is fused across them.

Why it costs you
    Each operation reads and writes its whole tensor, and its dispatch takes some microseconds. The cost is a bound: all
    the time of the optimizer, on a compute-bound GPU by the GPU's own clock. A trial shows how much of it is saved.

What to try
    Pass `fused=True` to the optimizer: the updates are the same but for rounding. If there are hundreds of parameter
    groups, first put all parameters with the same options into one group.

In code
    # sick
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    # cured
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

When to leave it
    Leave it if a fused step cannot do what you need (sparse gradients, `differentiable=True`), or if the groups really
    differ in their options. Plain SGD on a few tensors is not reported.
""",
)
CAUSES: Final = (UNFUSED,)

OPTIMIZER_SHARE: Final = 0.10
"""An optimizer that takes less of the step is usual."""
MANY_GROUPS: Final = 100
"""Parameter groups: each is stepped by operations of its own. Layers of different options make a few dozen."""
FEW_TENSORS: Final = 20
"""Plain SGD is a single operation on each tensor: with so few there is nothing to fuse."""
GROUPED: Final = """\
same = {}
for name, p in model.named_parameters():  # one group for all parameters with the same options
    same.setdefault(options(name), []).append(p)  # options: such as (lr, weight_decay)
groups = [{"params": ps, "lr": lr, "weight_decay": decay} for (lr, decay), ps in same.items()]"""


def check(vitals: Vitals) -> Finding | None:
    """Fires where a tenth of the time goes to an optimizer that torch could fuse, or that has hundreds of groups."""
    share = vitals.gpu_optimizer_share if vitals.device_limits else vitals.optimizer_share
    facts = vitals.optimizer_facts
    if share is None or share < OPTIMIZER_SHARE or not facts:
        return None
    split = [one for one in facts if (one.groups or 0) >= MANY_GROUPS]
    slow = split or [one for one in facts if one.can_fuse and not one.fused and _in_many_operations(one)]
    if not slow:
        return None
    theirs = share * _part(slow, facts)
    one = max(slow, key=lambda each: (each.groups or 0, each.elements) if split else (0, each.elements))
    cost = gpu_pace.at_most(vitals, theirs)
    whose = "GPU's " if vitals.device_limits else ""
    why = f"has {formatting.count(one.groups, 'parameter group')}" if split else "is not fused"
    return Finding(
        rule=UNFUSED.name,
        headline=f"{one.name} {why}: its steps take at most {formatting.share(cost)} of the {whose}time.",
        cost_share=cost,
        kind="at-most",
        evidence=(
            f"it updates {formatting.count(one.tensors, 'tensor')} with {formatting.count(one.elements, 'element')} "
            f"{_how(one, vitals)}",
            f"that takes {formatting.seconds(theirs * (vitals.host_step_s or 0.0))} a step",
        ),
        prescriptions=(*((_together(one),) if split else ()), *_fused(one)),
    )


def _in_many_operations(one: OptimizerFacts) -> bool:
    plain = one.name == "SGD" and not one.momentum
    return one.tensors > (FEW_TENSORS if plain else 0)


def _part(some: Sequence[OptimizerFacts], facts: Sequence[OptimizerFacts]) -> float:
    """Of all optimizers' tensors, the part that is theirs."""
    return sum(one.tensors for one in some) / max(sum(one.tensors for one in facts), 1)


def _how(one: OptimizerFacts, vitals: Vitals) -> str:
    if (one.groups or 0) >= MANY_GROUPS:
        return "group by group"
    return "one parameter at a time" if one.foreach is False or not vitals.on_gpu else "in groups of operations"


def _together(one: OptimizerFacts) -> Prescription:
    return Prescription(
        text="Put all parameters with the same options into one group: nothing is fused across groups",
        safety=Safety.BY_HAND,
        code=f"{GROUPED}\noptimizer = torch.optim.{one.name}(groups)",
        changes="The same updates; a scheduler then has fewer groups to change.",
    )


def _fused(one: OptimizerFacts) -> tuple[Prescription, ...]:
    """Returns the cure within a group, if there is one: torch refuses `foreach` beside `fused`."""
    if one.fused:
        return ()
    made = f"torch.optim.{one.name}(model.parameters(), lr=..., "
    if not one.can_fuse:
        return (Prescription("Step all parameters of a group at once", Safety.BY_HAND, code=f"{made}foreach=True)"),)
    return (
        Prescription(
            text="Update all parameters with one fused kernel",
            safety=Safety.SAFE,
            settings={"fused_optimizer": True},
            code=f"{made}fused=True)",
        ),
    )
