"""Runs the cell again under other settings, compares, and puts everything back.

Stands on both halves: it records runs and reads diagnoses of them. It knows no front end: who shows a trial asks it.
"""
