"""A GPU's recording is played in a real kernel without torch or a GPU, and in a notebook that nobody sees."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import pytest

from tests.support.real_kernel import Kernel
from tests.support.real_kernel import kernel as kernel
from tests.support.repository import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SAVED: Final = ROOT / "tests" / "unit" / "recording" / "saved"
ON_A_GPU: Final = SAVED / "on-a-gpu-as-simulated.npz"
WITHOUT_TORCH: Final = """
import sys
class Wall:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError("torch is not on this machine")
sys.meta_path.insert(0, Wall())
"""


def replayed(path: Path, speed: float) -> str:
    return f"import gpu_doctor; gpu_doctor.replay({str(path)!r}, speed={speed})"


def test_a_recording_of_a_gpu_is_played_without_torch(kernel: Kernel) -> None:
    kernel.run(WITHOUT_TORCH)
    kernel.run(replayed(ON_A_GPU, 0.5), cell="a")
    assert kernel.statuses[0] == "replaying" and kernel.statuses[-1] == "idle"
    kernel.click(ask="forecast", settings={"amp": "bf16"})
    kernel.click(ask="fix", settings={"amp": "bf16", "channels_last": True})
    kernel.click(ask="trial", settings={"amp": "bf16"})
    told = kernel.run(
        "from gpu_doctor.notebook.open_panels import _open; shown = [*_open.values()][-1].__self__.panel.view\n"
    )
    told += kernel.run("print(shown.state['header']['machine'], '|', shown.state['noTrials'])")
    assert "Simulated" in told or "NVIDIA" in told, told
    assert "A replay has no loop" in told
    left = kernel.run("import threading; print('torch' in sys.modules, [one.name for one in threading.enumerate()])")
    assert left.startswith("False") and "gpu_doctor" not in left


CAUGHT: Final = """
import threading
try:
    {}
except KeyboardInterrupt:
    print("INTERRUPTED")
print([one.name for one in threading.enumerate() if "gpu_doctor" in one.name])
"""


@pytest.mark.parametrize("how", ["stop", "interrupt"])
def test_stop_and_the_kernels_interrupt_end_it_with_its_result(kernel: Kernel, how: str) -> None:
    way = kernel.subshell()
    kernel.run("import gpu_doctor")
    played = replayed(SAVED / "starved-on-a-cpu.npz", 0.01).partition("; ")[2]
    begin = time.monotonic()
    message = kernel.client.execute(CAUGHT.format(played))
    kernel.listen(lambda: "replaying" in kernel.statuses, "It did not begin")
    if how == "stop":
        kernel.click(way, ask="stop")
    else:
        kernel.interrupt()
    kernel.listen(lambda: message in kernel.done, "It was not heard")
    assert time.monotonic() - begin < 100, "to the end it would have taken three minutes"
    assert kernel.statuses[-1] == "idle"
    assert kernel.printed[message] == ("[]\n" if how == "stop" else "INTERRUPTED\n[]\n")
