"""Measures time on the device: marks (CUDA events) on its stream, read later and never waited for."""
