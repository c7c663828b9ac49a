"""Renders a diagnosis and its trials as text, as static HTML, and as the panel's state in plain data.

This package reads the public fields of diagnoses and trials. It knows no Jupyter, no torch and no run in progress, and
it measures and judges nothing: the packages below it computed what it shows.
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
