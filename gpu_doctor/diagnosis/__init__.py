"""From a recording to a diagnosis: vitals are computed, rules find and price causes, forecasts predict cures.

All functions are pure functions of a recording: numpy only, no torch, no clock, no run in progress. The package knows
nothing of how a recording was made, nor of trials.
"""

from gpu_doctor.diagnosis.as_data import anatomy
from gpu_doctor.diagnosis.diagnosis import Diagnosis, diagnose, judged, ranked
from gpu_doctor.diagnosis.forecast.forecast import fewest_near_best, worker_counts
from gpu_doctor.diagnosis.forecast.prediction import Forecast
from gpu_doctor.diagnosis.forecast.stages import OTHERS
from gpu_doctor.diagnosis.rules import RULES, every_cause, every_rule
from gpu_doctor.diagnosis.rules.evidence import place
from gpu_doctor.diagnosis.rules.page import explain, paragraphs
from gpu_doctor.diagnosis.rules.prescriptions import SHARD_FIRST
from gpu_doctor.diagnosis.rules.rule import NAMING_BAR, Cause, Finding, Prescription, Rule, Safety
from gpu_doctor.diagnosis.silent_rules import by_reason
from gpu_doctor.diagnosis.verdict import ended_the_run
from gpu_doctor.diagnosis.vitals.arithmetic import arithmetic_kind
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.machine import busy_machine, others_share
from gpu_doctor.diagnosis.vitals.measure import FEWEST_STEPS, measure, warmup_rows, warmup_so_far
from gpu_doctor.diagnosis.vitals.memory_fit import MemoryFit
from gpu_doctor.diagnosis.vitals.pace import paced_s

__all__ = [
    "FEWEST_STEPS",
    "NAMING_BAR",
    "OTHERS",
    "RULES",
    "SHARD_FIRST",
    "Cause",
    "Diagnosis",
    "Finding",
    "Forecast",
    "MemoryFit",
    "Prescription",
    "Rule",
    "Safety",
    "Vitals",
    "anatomy",
    "arithmetic_kind",
    "busy_machine",
    "by_reason",
    "diagnose",
    "ended_the_run",
    "every_cause",
    "every_rule",
    "explain",
    "fewest_near_best",
    "judged",
    "measure",
    "others_share",
    "paced_s",
    "paragraphs",
    "place",
    "ranked",
    "warmup_rows",
    "warmup_so_far",
    "worker_counts",
]
