"""gpu_doctor: shows live in the notebook why your GPU idles, and proves the cure by rerunning the cell.

Use `%load_ext gpu_doctor`, then `%%gpudoctor` on a training cell. Without IPython, use `case`, `watch`, `diagnose`, or
the command `gpudoctor run script.py`.
Importing this package imports neither torch nor bokeh: every public name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpu_doctor.diagnosis import diagnose as diagnose
    from gpu_doctor.diagnosis import explain as explain
    from gpu_doctor.diagnosis.vitals.measure import measure as measure
    from gpu_doctor.job import Job as Job
    from gpu_doctor.job import load as load
    from gpu_doctor.machine.checkup.check import check as check
    from gpu_doctor.notebook.replay import replay as replay
    from gpu_doctor.recording import Recording as Recording
    from gpu_doctor.recording import RecordingError as RecordingError
    from gpu_doctor.trials import Case as Case
    from gpu_doctor.trials import last_case as last_case
    from gpu_doctor.trials.case import case as case
    from gpu_doctor.trials.compare import compare as compare
    from gpu_doctor.trials.executors import RayExecutor as RayExecutor
    from gpu_doctor.trials.watch import watch as watch

__version__ = "0.1.0"

_PUBLIC = {
    "Case": "trials.case",
    "Job": "job",
    "RayExecutor": "trials.executors",
    "Recording": "recording",
    "RecordingError": "recording",
    "case": "trials.case",
    "check": "machine.checkup.check",
    "compare": "trials.compare.effect",
    "diagnose": "diagnosis.diagnosis",
    "explain": "diagnosis.rules.page",
    "last_case": "trials.case",
    "load": "job",
    "measure": "diagnosis.vitals.measure",
    "replay": "notebook.replay",
    "watch": "trials.watch",
}
__all__ = ["__version__", "load_ipython_extension", "unload_ipython_extension", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'gpu_doctor' has no attribute {name!r}")
    value = getattr(import_module(f"gpu_doctor.{_PUBLIC[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(shell: Any) -> None:
    """Registers the magics and deletes the scratch folders of killed kernels (called by `%load_ext gpu_doctor`)."""
    import sys

    from gpu_doctor.command import other_package
    from gpu_doctor.notebook import magic
    from gpu_doctor.trials import remove_scratch_folders

    magic.register(shell)
    remove_scratch_folders()
    if advice := other_package():
        sys.stderr.write(f"{advice}\n")


def unload_ipython_extension(shell: Any) -> None:
    """Removes the magics (called by `%unload_ext gpu_doctor`)."""
    from gpu_doctor.notebook import magic

    magic.unregister(shell)
