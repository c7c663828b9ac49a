"""Knob `amp`: forward and loss in half precision (bf16, or fp16 with gradient scaling), by torch's recipe."""

from __future__ import annotations

from typing import Final

from gpu_doctor.cell import Edits
from gpu_doctor.cell.switches import own_amp_off
from gpu_doctor.diagnosis import Safety
from gpu_doctor.machine import cuda_available
from gpu_doctor.recording import Settings, SettingValue, Setup
from gpu_doctor.trials.knobs.amp.edit import recipe
from gpu_doctor.trials.knobs.draft import Draft
from gpu_doctor.trials.knobs.knob import NO_MODEL, Choice, Knob, choice
from gpu_doctor.trials.knobs.this_machine import torch_of

OFF: Final = "off"
HALF: Final = ("bf16", "fp16")
_SHORT: Final = {"bfloat16": "bf16", "float16": "fp16"}
BF16_CAPABILITY: Final = 8
"""Lowest compute capability (Ampere) whose tensor cores compute bf16; older cards emulate it (CUDA C guide)."""
OWN_SCALER: Final = "Your loop has its own GradScaler: wrap its forward in autocast there."
LSTM_BF16: Final = "torch's LSTM fails in bf16 on this CPU, which has no AVX-512."
NO_DEVICE: Final = "Mixed precision is not offered on {0}: only on CUDA devices and the CPU."
CPU_FP16: Final = "fp16 is slow on a CPU. Try bf16."
LBFGS: Final = "LBFGS evaluates the loss several times a step, which gradient scaling cannot follow: try bf16."


class Amp(Knob):
    """See `Knob`."""

    name = "amp"
    label = "AMP"
    safety, only_rounds = Safety.CHANGES_TRAINING, True
    lines_only = True
    written_late = 3
    changes = (
        "Matrix products and convolutions run in half precision, weights and optimizer stay fp32. The losses differ "
        "slightly: compare them over the same samples before you keep it."
    )
    front = True

    def found(self, setup: Setup) -> str | None:
        """See `Knob`."""
        return _SHORT.get(setup.autocast, OFF)

    def choices(self, setup: Setup) -> tuple[Choice, ...]:
        """See `Knob`."""
        yours = self.found(setup) if setup.autocast else None
        labels = {yours: f"{yours} (yours)"} if yours else {}
        if setup.grad_scaler and not yours:
            labels[OFF] = f"{OFF} (your GradScaler)"
        return tuple(choice(self, value, labels.get(value, value), setup) for value in (OFF, *HALF))

    def parsed(self, text: str) -> str:
        """See `Knob`."""
        word = text.strip().lower()
        word = {"false": OFF, "none": OFF, "bfloat16": "bf16", "float16": "fp16"}.get(word, word)
        if word not in (OFF, *HALF):
            raise ValueError("amp takes off, bf16 or fp16, such as amp=bf16.")
        return word

    def reason(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        if setup == Setup():
            return CPU_FP16 if value == "fp16" and cuda_available() is False else ""
        if setup.autocast:
            own = f"Your code enters autocast ({setup.autocast}) itself: change its dtype there."
            return "" if value == OFF else own
        if setup.grad_scaler and value == "fp16":
            return OWN_SCALER
        if not setup.optimizers:
            return NO_MODEL
        if setup.dtype not in ("float32", ""):
            return f"The parameters are {setup.dtype}: mixed precision is for models in float32."
        kind = setup.device.partition(":")[0]
        if kind not in ("cpu", "cuda"):
            return NO_DEVICE.format(kind)
        return _bf16_refusal(setup) if value == "bf16" else _fp16_refusal(kind, setup)

    def is_noop(self, value: SettingValue, setup: Setup) -> bool:
        """See `Knob`."""
        # With no setup yet, `off` may be asked of a loop that has an autocast of its own.
        # A GradScaler without an autocast is switched off by `off` too, which is what it is found to be.
        scales = value == OFF and setup.grad_scaler
        return setup != Setup() and super().is_noop(value, setup) and not scales

    def loss_reason(self, value: SettingValue | None, setup: Setup) -> str:
        """See `Knob`."""
        return "fp16 leaves out its first steps until the loss scale fits" if value == "fp16" else ""

    def code(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        kind = setup.device.partition(":")[0]
        if value == OFF:
            return (
                f'torch.autocast("{kind}", enabled=False)  # or without it\n'
                f'torch.amp.GradScaler("{kind}", enabled=False)  # or without it'
            )
        dtype = "bfloat16" if value == "bf16" else "float16"
        lines = [
            f'with torch.autocast(device_type="{kind}", dtype=torch.{dtype}):',
            "    output = model(input)",
            "    loss = criterion(output, target)",
        ]
        if value == "bf16":
            return "\n".join([*lines, "loss.backward()"])
        lines = [f'scaler = torch.amp.GradScaler("{kind}")  # once, before the loop', *lines]
        lines += ["scaler.scale(loss).backward()", "scaler.unscale_(optimizer)  # before clipping gradients"]
        lines += ["scaler.step(optimizer)", "scaler.update()"]
        return "\n".join(lines)

    def edit(self, settings: Settings, draft: Draft) -> Edits:
        """See `Knob`."""
        value = settings[self.name]
        if value == OFF:
            return own_amp_off(draft.cells)
        torch, edits = draft.torch()
        dtype = "bfloat16" if value == "bf16" else "float16"
        return [*edits, *recipe(draft.loop, torch, draft.device, dtype)]


KNOB = Amp()


def lstm_in_bf16() -> bool:
    """True if torch's LSTM runs in bf16 on this CPU.

    oneDNN has no such kernel below AVX-512 ("could not create a primitive descriptor", torch 2.13 on AVX2), where GRU,
    RNN, products and convolutions run all the same.
    """
    import torch

    try:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):  # a build without oneDNN has nothing that could raise
        return True


def _bf16_refusal(setup: Setup) -> str:
    if not setup.on_gpu and "LSTM" in setup.layers and torch_of(setup) is not None and not lstm_in_bf16():
        return LSTM_BF16
    if setup.card is None or not setup.card.capability or setup.card.capability[0] >= BF16_CAPABILITY:
        return ""
    major, minor = setup.card.capability
    return f"{setup.card.name} (compute capability {major}.{minor}) emulates bf16: try fp16."


def _fp16_refusal(kind: str, setup: Setup) -> str:
    if kind == "cpu":
        return CPU_FP16
    if len(setup.optimizers) > 1:
        return "The loop steps more than one optimizer, and one loss scale cannot serve both: try bf16."
    if "LBFGS" in setup.optimizers:
        return LBFGS
    return ""
