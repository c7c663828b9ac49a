"""Need an NVIDIA GPU."""
