"""Stores the state that a trial may change, and puts it back afterwards."""
