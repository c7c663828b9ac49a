"""From a recording to a diagnosis: vitals are measured, rules price what they find, forecasts say what a cure gives.

Pure functions over a recording: numpy only, no torch, no clock, no run in progress. It knows nothing of how a recording
came about, nor of trials.
"""

from gpu_doctor.diagnosis.diagnosis import Diagnosis, diagnose, judged
from gpu_doctor.diagnosis.forecast.prediction import Forecast
from gpu_doctor.diagnosis.rules import RULES
from gpu_doctor.diagnosis.rules.page import explain
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Rule, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.measure import measure

__all__ = [
    "RULES",
    "Diagnosis",
    "Finding",
    "Forecast",
    "Prescription",
    "Rule",
    "Safety",
    "Vitals",
    "diagnose",
    "explain",
    "judged",
    "measure",
]
