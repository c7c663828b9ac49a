"""Proves on a GPU what is marked as not yet run on one: `make gpu`, or `python -m benchmarks.gpu`."""
