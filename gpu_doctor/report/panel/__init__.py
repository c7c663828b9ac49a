"""The panel's state, section by section, as plain data that a front end draws."""

from gpu_doctor.report.panel.controls import checked_request
from gpu_doctor.report.panel.results import fix_shown
from gpu_doctor.report.panel.state import BUSY, STATUS, PanelInput, Progress

__all__ = [
    "BUSY",
    "STATUS",
    "PanelInput",
    "Progress",
    "checked_request",
    "fix_shown",
]
