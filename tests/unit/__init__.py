"""Instant tests: no sleep, no real clock, no browser, under a second of CPU each."""
