"""What this machine is and does now: its GPUs through NVML, its cores and memory, torch's allocator, and the check-up.

Everything here reads and changes nothing. It knows nothing of training: no steps, no loops, no diagnosis.
"""
