"""What a diagnosis and its trials look like: text, static HTML, and the panel's state as plain data.

Knows diagnoses and trials by what they say of themselves; knows no Jupyter, no torch and no run in progress. It
measures nothing and judges nothing: what it shows was worked out below.
"""

from gpu_doctor.labels import LABELS
from gpu_doctor.report.as_text import html, text
from gpu_doctor.report.plot_data import INK, PLOTS, UNITS, Layer, Line, Marks, expected, in_order, title
from gpu_doctor.report.sections import Reported

__all__ = [
    "INK",
    "LABELS",
    "PLOTS",
    "UNITS",
    "Layer",
    "Line",
    "Marks",
    "Reported",
    "expected",
    "html",
    "in_order",
    "text",
    "title",
]
