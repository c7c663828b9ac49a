"""Rules of other packages: found by the entry-point group `gpu_doctor.rules`, loaded at the first diagnosis.

An entry point names a module of the same form as our own rule files: its docstring is its page, `VERSION` says for
which list of vitals it was written, `NEEDS` names the vitals it cannot do without, and `check(vitals)` returns a
`Finding` or None. If such a rule is at fault, the diagnosis gets a note, and the package's other rules still count.
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
"""Version of `OPEN_VITALS`; it rises when a field goes or means something else."""
OPEN_VITALS: Final = (
    *("steps", "measured_steps", "warmup_steps", "samples", "samples_per_s", "steps_per_s", "step_wall_s", "epochs"),
    *("data_wait_share", "exposed_wait_share", "transfer_share", "forward_share", "backward_share"),
    *("optimizer_share", "sync_share", "evaluation_share", "ours_share", "other_share", "loss_share", "edge_share"),
    *("fetch_wall_s", "fetch_cpu_s", "collate_s", "batch_bytes", "batch_tensors", "workers"),
    *("consumer_s", "consumer_cpu_s", "syncs_per_step", "usable_cores", "setup", "on_gpu", "source", "lines"),
)
"""Fields of `Vitals` that rules of other packages may need."""


@dataclass(frozen=True)
class Plugins:
    """The rules of other packages, and a note on each rule that was left out."""

    rules: tuple[Rule, ...] = ()
    notes: tuple[str, ...] = ()


@lru_cache(maxsize=1)
def plugins() -> Plugins:
    """Loads the rules of all installed packages, once in a process."""
    rules: list[Rule] = []
    notes: list[str] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (_package(entry), entry.name)):
        try:
            rules.append(_rule(entry))
        except Exception as error:
            reason = clean(raised(error), 200)
            notes.append(f"The rule {entry.name!r} of {_package(entry)} was left out ({reason}).")
    return Plugins(tuple(rules), tuple(notes))


def _package(entry: EntryPoint) -> str:
    """Returns the name of the package that an entry point comes from."""
    return clean(entry.dist.name if entry.dist is not None else entry.value.partition(":")[0], 80)


def _rule(entry: EntryPoint) -> Rule:
    """Loads the rule of an entry point; its name begins with its package's name.

    Raises:
        ValueError: if it was written for another version, or needs a vital that is not in `OPEN_VITALS`.
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
    """Wraps a plugin's check: rejects a finding without a valid price and gives the finding the rule's name."""

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
