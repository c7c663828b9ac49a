"""Automatic mixed precision: the knob, and how it is written into a cell."""

from gpu_doctor.trials.knobs.amp.knob import KNOB as KNOB
