"""Facts about skorch 1, from its manual."""

from __future__ import annotations

from typing import Final

from gpu_doctor.capture.frameworks.framework import Class, Framework, named

FRAMEWORK: Final = Framework(
    name="skorch",
    packages=("skorch",),
    classes=(
        Class(
            "NeuralNet",
            ("skorch",),
            {
                "batch_size": named("batch_size"),
                "compile": named("compile"),
                **{
                    name: named(f"iterator_train__{name}")
                    for name in ("num_workers", "pin_memory", "persistent_workers", "prefetch_factor")
                },
            },
        ),
    ),
)
