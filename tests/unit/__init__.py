"""Instant tests: no sleep, no real clock, no browser, a second of CPU at most."""
