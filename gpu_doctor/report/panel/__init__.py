"""The panel's state, section by section, as plain data that a front end draws."""

from gpu_doctor.report.contract import FixShown, Points, Said, Status, as_json
from gpu_doctor.report.fix import fix_shown
from gpu_doctor.report.panel.controls import checked_request
from gpu_doctor.report.panel.panel_state import state
from gpu_doctor.report.panel.recent import Memory
from gpu_doctor.report.panel_input import BUSY, STATUS, PanelInput, Progress

__all__ = [
    "BUSY",
    "STATUS",
    "FixShown",
    "Memory",
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
