"""Rules of other packages: found by the entry-point group `gpu_doctor.rules`, loaded when a diagnosis first asks.

An entry point names a module of the form of our own rule files: its docstring is its page, `VERSION` says for which
list of vitals it was written, `NEEDS` which of them it cannot do without, `check(vitals)` returns a `Finding` or None.
What such a package does wrong is a note of the diagnosis, and its other rules still count.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, wraps
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Final

from gpu_doctor.diagnosis.rules.rule import Finding, Found, Rule, rule_of
from gpu_doctor.diagnosis.vitals.measure import Vitals
from gpu_doctor.formatting import clean, raised
from gpu_doctor.recording import form

GROUP: Final = "gpu_doctor.rules"
VERSION: Final = 1
"""Of the list below; it rises when a field goes or means something else."""
OPEN_VITALS: Final = (
    *("steps", "measured_steps", "warmup_steps", "samples", "samples_per_s", "steps_per_s", "step_wall_s", "epochs"),
    *("data_wait_share", "exposed_wait_share", "transfer_share", "forward_share", "backward_share"),
    *("optimizer_share", "sync_share", "evaluation_share", "ours_share", "other_share", "loss_share", "edge_share"),
    *("fetch_wall_s", "fetch_cpu_s", "collate_s", "batch_bytes", "batch_tensors", "workers"),
    *("consumer_s", "consumer_cpu_s", "syncs_per_step", "usable_cores", "setup", "on_gpu", "source", "lines"),
)
"""The fields of `Vitals` that other packages may read. They give a `Finding`, with all of its fields."""


@dataclass(frozen=True)
class Plugins:
    """The rules of other packages, and a sentence for each that could not be taken."""

    rules: tuple[Rule, ...] = ()
    notes: tuple[str, ...] = ()


@lru_cache(maxsize=1)
def plugins() -> Plugins:
    """What the packages on the path offer, read once in a process."""
    rules: list[Rule] = []
    notes: list[str] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda one: (_package(one), one.name)):
        try:
            rules.append(_rule(entry))
        except Exception as error:
            reason = clean(raised(error), 200)
            notes.append(f"The rule {entry.name!r} of {_package(entry)} was left out ({reason}).")
    return Plugins(tuple(rules), tuple(notes))


def _package(entry: EntryPoint) -> str:
    return clean(entry.dist.name if entry.dist is not None else entry.value.partition(":")[0], 80)


def _rule(entry: EntryPoint) -> Rule:
    """The rule of an entry point, under its package's name.

    Raises:
        ValueError: if it is of another version, or needs what is not open.
        Exception: whatever loading it raises.
    """
    module = entry.load()
    if not isinstance(module, ModuleType):
        raise TypeError("it names no module")
    if getattr(module, "VERSION", None) != VERSION:
        raise ValueError(f"it says VERSION = {getattr(module, 'VERSION', None)!r}, and this is version {VERSION}")
    rule = rule_of(module)
    (cause,) = rule.causes
    closed = sorted({*cause.needs, *(cause.cpu_needs or ())} - set(OPEN_VITALS))
    if closed:
        raise ValueError(f"it needs {', '.join(closed)}, which is not open to other packages")
    name = f"{_package(entry)}/{entry.name}".lower().replace("_", "-")  # as `ignore` and `explain` read names
    family = str(getattr(module, "FAMILY", "other"))
    causes = (dataclasses.replace(cause, name=name, family=family),)
    return dataclasses.replace(rule, name=name, family=family, causes=causes, check=_checked(rule.check, name))


def _checked(check: Callable[[Vitals], Found], name: str) -> Callable[[Vitals], Finding | None]:
    """The check, whose finding has the rule's name and a price that can be compared."""

    @wraps(check)
    def checked(vitals: Vitals) -> Finding | None:
        finding = check(vitals)
        if finding is None:
            return None
        if not isinstance(finding, Finding):
            raise TypeError(f"check() returned {type(finding).__name__}, not a Finding")
        form.made(Finding, finding)
        share = finding.cost_share
        if finding.kind == "hint" and share is not None:
            raise ValueError(f"cost_share is {share!r}, and nothing prices a hint: None")
        if finding.kind != "hint" and (share is None or not math.isfinite(share) or not 0.0 <= share <= 1.0):
            raise ValueError(f"cost_share is {share!r}, not a share from 0 to 1")
        return dataclasses.replace(finding, rule=name, first=False)

    return checked
