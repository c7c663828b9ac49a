"""Finds the lines of the user's code that take the time, by sampling stacks."""
