"""Builds the panel's state as plain data that a front end draws, and checks the front end's requests."""

from gpu_doctor.report.contract import FixShown, Notice, Points, Status, as_json
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
    "Notice",
    "PanelInput",
    "Points",
    "Progress",
    "Status",
    "as_json",
    "checked_request",
    "fix_shown",
    "state",
]
