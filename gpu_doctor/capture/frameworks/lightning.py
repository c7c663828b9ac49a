"""Facts about Lightning 2, also under its older name, and Fabric, from their manuals."""

from __future__ import annotations

from typing import Final

from gpu_doctor.capture.frameworks.framework import Class, Framework, half

_PACKAGES: Final = ("lightning", "pytorch_lightning")
_PRECISION: Final = half('"bf16-mixed"', '"16-mixed"', '"32-true"', "precision")
_TRAINER: Final = Class("Trainer", _PACKAGES, {"amp": _PRECISION})

FRAMEWORK: Final = Framework(
    name="Lightning",
    packages=(*_PACKAGES, "lightning_fabric"),
    classes=(_TRAINER, Class("Fabric", ("lightning", "lightning_fabric"), {"amp": _PRECISION})),
    boxes=("LightningModule",),
    trainer=_TRAINER,
    model_method="fit",
    makes_training_loader=("train_dataloader",),
)
