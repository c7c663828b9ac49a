"""The shelf of rules: every known reason for a loop that keeps its device waiting. One file each, listed in RULES."""

from __future__ import annotations

from gpu_doctor.rules.compute import full_precision, heavy_evaluation
from gpu_doctor.rules.host import host_sync, launch_bound, slow_python
from gpu_doctor.rules.input import (
    loader_without_workers,
    slow_collate,
    slow_getitem,
    too_few_workers,
    too_many_workers,
    uneven_batches,
    workers_restart_each_epoch,
)
from gpu_doctor.rules.memory import small_batch
from gpu_doctor.rules.rule import Rule, rule_of
from gpu_doctor.rules.transfer import pageable_transfer

RULES: tuple[Rule, ...] = tuple(
    rule_of(module)
    for module in (
        loader_without_workers,
        too_few_workers,
        too_many_workers,
        uneven_batches,
        slow_getitem,
        slow_collate,
        workers_restart_each_epoch,
        pageable_transfer,
        host_sync,
        launch_bound,
        slow_python,
        full_precision,
        heavy_evaluation,
        small_batch,
    )
)


def table_markdown() -> str:
    """The rules as a Markdown table, as README shows it."""
    rows = [f"| `{rule.name}` | {rule.family} | {rule.summary} |" for rule in RULES]
    return "\n".join(["| rule | family | what it finds |", "|---|---|---|", *rows])
