"""What the first panel needs is made ready by a thread that `%load_ext` begins and that ends by itself."""

from __future__ import annotations

from tests.support.real_kernel import Kernel
from tests.support.real_kernel import kernel as kernel

LOOK = """
import sys, threading
for one in threading.enumerate():
    if one.name == "gpu_doctor-imports":
        one.join(60)
print("bokeh.models" in sys.modules, "torch" in sys.modules)
print(any(one.name.startswith("gpu_doctor") for one in threading.enumerate()))
print(sys.modules["gpu_doctor.notebook.plots"].document.cache_info().currsize)
"""


def test_bokeh_and_the_figures_are_there_before_the_first_cell_and_torch_is_not(kernel: Kernel) -> None:
    kernel.run("%load_ext gpu_doctor")
    assert kernel.run(LOOK).split() == ["True", "False", "False", "1"]
