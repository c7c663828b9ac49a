"""Evaluates the diagnosis on programs whose truth is known: `python -m tools.evaluate`."""
