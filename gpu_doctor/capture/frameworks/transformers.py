"""Facts about transformers 5, and trl on top of it, from their manuals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpu_doctor.capture.frameworks.framework import Class, Framework, named
from gpu_doctor.recording import SettingValue

_PACKAGES: Final = ("transformers", "trl")


def _two_switches(value: SettingValue) -> Mapping[str, str]:
    """Returns the switches of both formats for a value of the knob `amp`: at most one may be on."""
    return {
        **{name: "False" for name in ("bf16", "fp16") if name != value},
        **({str(value): "True"} if value in ("bf16", "fp16") else {}),
    }


_ARGUMENTS: Final = Class(
    "TrainingArguments",
    _PACKAGES,
    {
        "num_workers": named("dataloader_num_workers"),
        "batch_size": named("per_device_train_batch_size"),
        "pin_memory": named("dataloader_pin_memory"),
        "persistent_workers": named("dataloader_persistent_workers"),
        "prefetch_factor": named("dataloader_prefetch_factor"),
        "amp": _two_switches,
        "tf32": named("tf32"),
        "compile": named("torch_compile"),
        "fused_optimizer": lambda value: {"optim": '"adamw_torch_fused"' if value else '"adamw_torch"'},
    },
)

FRAMEWORK: Final = Framework(
    name="transformers",
    packages=_PACKAGES,
    classes=(_ARGUMENTS,),
    trainer=Class("Trainer", _PACKAGES),
    model_argument="model",
    makes_training_loader=("get_train_dataloader",),
)
