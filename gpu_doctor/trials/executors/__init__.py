"""Where a sweep runs: the Ray that Ray Tune uses, what travels to it, and what comes back."""

from __future__ import annotations

from gpu_doctor.trials.executors.ray import RayExecutor

__all__ = ["RayExecutor"]
