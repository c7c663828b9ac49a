"""A deep look at a few steps under torch.profiler: what the device computes, and which line calls it."""
