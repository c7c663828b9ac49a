"""From a recording to a diagnosis: vitals are measured, rules price what they find, forecasts say what a cure gives.

Pure functions over a recording: numpy only, no torch, no clock, no run in progress. It knows nothing of how a recording
came about, nor of trials.
"""
