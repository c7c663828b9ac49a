"""Records one run: taps on torch and the frameworks, the clock of steps, the recorder, and the poller of the probes.

Everything here lives while the user's loop runs, and leaves only a recording behind. It knows nothing of the code that
reads the recording: no vitals, no rules, no trials.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gpu_doctor.capture.lines.places import Place as Place
    from gpu_doctor.capture.lines.places import Places as Places
    from gpu_doctor.capture.lines.stacks import outwards as outwards
    from gpu_doctor.capture.next_call import NextCall as NextCall
    from gpu_doctor.capture.nvtx import NvtxRanges as NvtxRanges
    from gpu_doctor.capture.nvtx import no_nvtx as no_nvtx
    from gpu_doctor.capture.patching import Patches as Patches
    from gpu_doctor.capture.ranges import follow as follow
    from gpu_doctor.capture.record import Busy as Busy
    from gpu_doctor.capture.record import recorded as recorded
    from gpu_doctor.capture.record import running as running
    from gpu_doctor.capture.recorder import Recorder as Recorder
    from gpu_doctor.capture.recorder import RunEnded as RunEnded
    from gpu_doctor.capture.stand_ins import Seam as Seam

# Name -> module, which is loaded when the name is first used, so that code loads only the modules that it needs.
_FACE: Final = {
    "Busy": "record",
    "NextCall": "next_call",
    "NvtxRanges": "nvtx",
    "Patches": "patching",
    "Place": "lines.places",
    "Places": "lines.places",
    "Recorder": "recorder",
    "RunEnded": "recorder",
    "Seam": "stand_ins",
    "follow": "ranges",
    "no_nvtx": "nvtx",
    "outwards": "lines.stacks",
    "recorded": "record",
    "running": "record",
}
__all__ = [*_FACE]


def __getattr__(name: str) -> Any:
    if name not in _FACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_FACE[name]}"), name)
