"""Rule for an optimizer that takes a large part of the step in many small operations."""

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
    for each. By default torch does not use it: on a CPU it loops over the parameters, on a GPU it launches grouped
    operations. Each parameter group is updated separately. With hundreds of groups, such as one per parameter, nothing
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
"""Share of the time from which on an optimizer is reported; less is usual."""
MANY_GROUPS: Final = 100
"""Fewest parameter groups that are too many, as each is updated by operations of its own. Layers with different options
make a few dozen."""
FEW_TENSORS: Final = 20
"""Most tensors with which plain SGD, a single operation on each tensor, has nothing to fuse."""
GROUPED: Final = """\
same = {}
for name, p in model.named_parameters():  # one group for all parameters with the same options
    same.setdefault(options(name), []).append(p)  # options: such as (lr, weight_decay)
groups = [{"params": ps, "lr": lr, "weight_decay": decay} for (lr, decay), ps in same.items()]"""


def check(vitals: Vitals) -> Finding | None:
    """Reports an optimizer that takes a tenth of the time if torch could fuse it, or if it has hundreds of groups."""
    share = vitals.gpu_optimizer_share if vitals.device_limits else vitals.optimizer_share
    facts = vitals.optimizer_facts
    if share is None or share < OPTIMIZER_SHARE or not facts:
        return None
    split = [each for each in facts if (each.groups or 0) >= MANY_GROUPS]
    slow = split or [each for each in facts if each.can_fuse and not each.fused and _in_many_operations(each)]
    if not slow:
        return None
    slow_share = share * _part(slow, facts)
    largest = max(slow, key=lambda each: (each.groups or 0, each.elements) if split else (0, each.elements))
    cost = gpu_pace.at_most(vitals, slow_share)
    owner = "GPU's " if vitals.device_limits else ""
    why = f"has {formatting.count(largest.groups, 'parameter group')}" if split else "is not fused"
    return Finding(
        rule=UNFUSED.name,
        headline=f"{largest.name} {why}: its steps take at most {formatting.share(cost)} of the {owner}time.",
        cost_share=cost,
        kind="at-most",
        evidence=(
            f"it updates {formatting.count(largest.tensors, 'tensor')} with "
            f"{formatting.count(largest.elements, 'element')} {_how(largest, vitals)}",
            f"that takes {formatting.seconds(slow_share * (vitals.host_step_s or 0.0))} a step",
        ),
        prescriptions=(*((_together(largest),) if split else ()), *_fused(largest)),
    )


def _in_many_operations(optimizer: OptimizerFacts) -> bool:
    """True unless it is plain SGD on a few tensors, in which there is nothing to fuse."""
    plain = optimizer.name == "SGD" and not optimizer.momentum
    return optimizer.tensors > (FEW_TENSORS if plain else 0)


def _part(selected: Sequence[OptimizerFacts], facts: Sequence[OptimizerFacts]) -> float:
    """Returns the part of all optimizers' tensors that some of them update, 0..1."""
    return sum(each.tensors for each in selected) / max(sum(each.tensors for each in facts), 1)


def _how(optimizer: OptimizerFacts, vitals: Vitals) -> str:
    """Says how an optimizer goes through its parameters, as evidence."""
    if (optimizer.groups or 0) >= MANY_GROUPS:
        return "group by group"
    return "one parameter at a time" if optimizer.foreach is False or not vitals.on_gpu else "in groups of operations"


def _together(optimizer: OptimizerFacts) -> Prescription:
    """Prescribes to merge parameter groups with the same options."""
    return Prescription(
        text="Put all parameters with the same options into one group: nothing is fused across groups",
        safety=Safety.BY_HAND,
        code=f"{GROUPED}\noptimizer = torch.optim.{optimizer.name}(groups)",
        changes="The same updates; a scheduler then has fewer groups to change.",
    )


def _fused(optimizer: OptimizerFacts) -> tuple[Prescription, ...]:
    """Prescribes the fused kernel, or `foreach` if the optimizer has none; nothing if it is fused already.

    torch refuses `foreach` together with `fused`.
    """
    if optimizer.fused:
        return ()
    call = f"torch.optim.{optimizer.name}(model.parameters(), lr=..., "
    if not optimizer.can_fuse:
        return (Prescription("Update all parameters of a group at once", Safety.BY_HAND, code=f"{call}foreach=True)"),)
    return (
        Prescription(
            text="Update all parameters with one fused kernel",
            safety=Safety.SAFE,
            settings={"fused_optimizer": True},
            code=f"{call}fused=True)",
        ),
    )
