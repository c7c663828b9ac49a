"""What forked workers cannot do. Needs no torch: the panel says it too."""

from __future__ import annotations

from typing import Final

FORKED_THREADS: Final = (
    "Forked workers with more than one thread hang, because OpenMP does not survive a fork: keep worker_threads=1."
)
"""Tried (torch 2.13, Linux): a worker forked after a parallel product in the training process never came back."""
