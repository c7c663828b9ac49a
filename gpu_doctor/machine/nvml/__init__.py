"""Reads the GPUs through NVIDIA's management library (NVML); only this folder imports `pynvml`."""

__all__ = ["probe"]
