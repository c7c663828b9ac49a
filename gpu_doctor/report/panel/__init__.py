"""The panel's state, section by section, as plain data that a front end draws."""

from gpu_doctor.report.panel.controls import checked_request
from gpu_doctor.report.panel.panel_state import state
from gpu_doctor.report.panel_input import BUSY, STATUS, PanelInput, Progress
from gpu_doctor.report.panel_parts import fix_shown

__all__ = [
    "BUSY",
    "STATUS",
    "PanelInput",
    "Progress",
    "checked_request",
    "fix_shown",
    "state",
]
