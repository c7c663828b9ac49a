"""Reruns the cell under other settings, compares the runs, and restores everything.

It uses both halves of the package: it records runs and reads their diagnoses. It knows no front end: a front end that
shows a trial reads it from here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gpu_doctor.trials.allowing import PERMISSIONS as PERMISSIONS
    from gpu_doctor.trials.case import Case as Case
    from gpu_doctor.trials.case import last_case as last_case
    from gpu_doctor.trials.ideal_loader import ceiling as ceiling
    from gpu_doctor.trials.ideal_loader import is_bound as is_bound
    from gpu_doctor.trials.ideal_loader import no_ideal as no_ideal
    from gpu_doctor.trials.ideal_loader import reached as reached
    from gpu_doctor.trials.look.result import Look as Look
    from gpu_doctor.trials.look.result import Operator as Operator
    from gpu_doctor.trials.plan import Dropped as Dropped
    from gpu_doctor.trials.plan import Plan as Plan
    from gpu_doctor.trials.plan import Step as Step
    from gpu_doctor.trials.results import Largest as Largest
    from gpu_doctor.trials.results import Sweep as Sweep
    from gpu_doctor.trials.results import sweep_state as sweep_state
    from gpu_doctor.trials.run import AlreadyShown as AlreadyShown
    from gpu_doctor.trials.searches import SWEEP_TRIALS as SWEEP_TRIALS
    from gpu_doctor.trials.searches import combinations as combinations
    from gpu_doctor.trials.searches import no_largest as no_largest
    from gpu_doctor.trials.searches import no_ray as no_ray
    from gpu_doctor.trials.side_effects.scratch import remove_scratch_folders as remove_scratch_folders
    from gpu_doctor.trials.watch import Watch as Watch

__all__ = [
    "PERMISSIONS",
    "SWEEP_TRIALS",
    "AlreadyShown",
    "Case",
    "Dropped",
    "Largest",
    "Look",
    "Operator",
    "Plan",
    "Step",
    "Sweep",
    "Watch",
    "ceiling",
    "combinations",
    "is_bound",
    "last_case",
    "no_ideal",
    "no_largest",
    "no_ray",
    "reached",
    "remove_scratch_folders",
    "sweep_state",
]

# Name -> module, loaded at first use, so that one name does not load the modules of the others.
_FACE: Final = {
    "AlreadyShown": "run",
    "Case": "case",
    "Largest": "results",
    "PERMISSIONS": "allowing",
    "Dropped": "plan",
    "Look": "look.result",
    "Operator": "look.result",
    "Plan": "plan",
    "Step": "plan",
    "SWEEP_TRIALS": "searches",
    "Sweep": "results",
    "Watch": "watch",
    "ceiling": "ideal_loader",
    "combinations": "searches",
    "is_bound": "ideal_loader",
    "last_case": "case",
    "no_ideal": "ideal_loader",
    "no_largest": "searches",
    "no_ray": "searches",
    "reached": "ideal_loader",
    "sweep_state": "results",
    "remove_scratch_folders": "side_effects.scratch",
}


def __getattr__(name: str) -> Any:
    if name not in _FACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_FACE[name]}"), name)
