"""Knob `threads`: how many threads torch computes with in the training process (not in workers: those have one)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch

from gpu_doctor.knobs.knob import Choice, TrialScope
from gpu_doctor.knobs.loader_knob import whole_number
from gpu_doctor.recording import SettingValue, Setup
from gpu_doctor.rules.rule import Safety


class Threads:
    """See `Knob`."""

    name = "threads"
    label = "torch threads"
    safety = Safety.SAFE
    changes = ""
    front = False

    def found(self, setup: Setup) -> int | None:
        return setup.torch_threads

    def choices(self, setup: Setup) -> tuple[Choice, ...]:
        most = max(1, round(setup.usable_cores))
        counts = {most, setup.torch_threads or most, *(2**power for power in range(10) if 2**power <= most)}
        return tuple(Choice(count, str(count), self.refusal(count, setup)) for count in sorted(counts))

    def parsed(self, text: str) -> int:
        return whole_number(text, self.name, 1)

    def refusal(self, value: SettingValue, setup: Setup) -> str:
        return "" if int(value) >= 1 else "torch computes with one thread at least."

    def turned(self, value: SettingValue, scope: TrialScope) -> AbstractContextManager[None]:
        return _turned(int(value))

    def code(self, value: SettingValue, setup: Setup) -> str:
        return f"torch.set_num_threads({int(value)})"


KNOB = Threads()


@contextmanager
def _turned(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
