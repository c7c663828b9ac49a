"""What a diagnosis and its trials look like: text, static HTML, and the panel's state as plain data.

Knows diagnoses and trials by what they say of themselves; knows no Jupyter, no torch and no run in progress. It
measures nothing and judges nothing: what it shows was worked out below.
"""

from gpu_doctor.labels import LABELS, heading
from gpu_doctor.report.as_text import html, text
from gpu_doctor.report.chart import thin
from gpu_doctor.report.sections import Reported
from gpu_doctor.svg import LINE_COLOURS, METRIC_COLOURS, ON_DARK, PHASE_COLOURS

__all__ = [
    "LABELS",
    "LINE_COLOURS",
    "METRIC_COLOURS",
    "ON_DARK",
    "PHASE_COLOURS",
    "Reported",
    "heading",
    "html",
    "text",
    "thin",
]
