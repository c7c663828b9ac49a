"""The panel's state, section by section, as plain data that a front end draws.

Lazy: the sections of a report name the classes of `contract`, and the state walks the sections.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gpu_doctor.report.fix import fix_shown as fix_shown
    from gpu_doctor.report.panel.contract import FixShown as FixShown
    from gpu_doctor.report.panel.contract import Output as Output
    from gpu_doctor.report.panel.contract import Points as Points
    from gpu_doctor.report.panel.contract import Said as Said
    from gpu_doctor.report.panel.contract import Status as Status
    from gpu_doctor.report.panel.contract import as_json as as_json
    from gpu_doctor.report.panel.controls import checked_request as checked_request
    from gpu_doctor.report.panel.panel_state import state as state
    from gpu_doctor.report.panel_input import BUSY as BUSY
    from gpu_doctor.report.panel_input import STATUS as STATUS
    from gpu_doctor.report.panel_input import PanelInput as PanelInput
    from gpu_doctor.report.panel_input import Progress as Progress

__all__ = [
    "BUSY",
    "STATUS",
    "FixShown",
    "Output",
    "PanelInput",
    "Points",
    "Progress",
    "Said",
    "Status",
    "as_json",
    "checked_request",
    "fix_shown",
    "state",
]

_FACE: Final = {
    "BUSY": "panel_input",
    "FixShown": "panel.contract",
    "Output": "panel.contract",
    "PanelInput": "panel_input",
    "Points": "panel.contract",
    "Progress": "panel_input",
    "STATUS": "panel_input",
    "Said": "panel.contract",
    "Status": "panel.contract",
    "as_json": "panel.contract",
    "checked_request": "panel.controls",
    "fix_shown": "fix",
    "state": "panel.panel_state",
}
"""Name -> where it stands in `report`."""


def __getattr__(name: str) -> Any:
    if name not in _FACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"gpu_doctor.report.{_FACE[name]}"), name)
