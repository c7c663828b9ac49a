"""Automatic mixed precision: the knob, how it is turned, and how it is written into a cell."""

from gpu_doctor.trials.knobs.amp.knob import KNOB as KNOB
