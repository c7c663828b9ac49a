"""What NVIDIA's management library tells of the GPUs: the one folder that imports `pynvml`."""

__all__ = ["probe"]
