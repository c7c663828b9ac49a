"""The check-up of a machine before a run: it gathers facts once, and judges them with pure functions."""
