"""tinytrain, a framework that does not exist."""

from __future__ import annotations

from typing import Final

from gpu_doctor.capture.frameworks.framework import Class, Framework, named

FRAMEWORK: Final = Framework(
    name="tinytrain",
    packages=("tinytrain",),
    classes=(Class("TinyTrainer", ("tinytrain",), {"num_workers": named("workers"), "batch_size": named("bs")}),),
)
