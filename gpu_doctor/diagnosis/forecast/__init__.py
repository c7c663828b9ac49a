"""Forecasts of the effect of a change, computed from a recording before the change is tried."""
