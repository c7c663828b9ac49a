"""Reading the probes neither imports torch nor initialises CUDA, looked at in a fresh process."""

from __future__ import annotations

import subprocess
import sys


def test_torch_is_never_imported_and_cuda_never_initialised() -> None:
    script = (
        "import sys; from gpu_doctor.machine import torch_memory; from gpu_doctor.machine.probe import ProbeScope\n"
        "with torch_memory.opened(ProbeScope(print)) as read: assert read() == []\n"
        "assert 'torch' not in sys.modules and torch_memory.device_uuids() == ()\n"
        "import torch\n"
        "with torch_memory.opened(ProbeScope(print)) as read: assert read() == []\n"
        "assert not torch.cuda.is_initialized()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
