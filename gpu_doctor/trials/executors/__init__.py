"""Runs a sweep on Ray: the cluster, the parcel that is sent to it, and the recordings that come back."""

from __future__ import annotations

from gpu_doctor.trials.executors.ray import RayExecutor

__all__ = ["RayExecutor"]
