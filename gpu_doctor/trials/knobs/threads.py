"""Knob `threads`: how many threads torch computes with in the training process (not in workers: those have one).

A cell that sets the number itself would turn the knob back: while it is turned, `torch.set_num_threads` leaves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from gpu_doctor.capture import Patches
from gpu_doctor.cell import Edits
from gpu_doctor.cell.switches import switched
from gpu_doctor.diagnosis import Safety
from gpu_doctor.recording import Settings, SettingValue, Setup
from gpu_doctor.trials.knobs.draft import Draft
from gpu_doctor.trials.knobs.knob import Choice, TrialScope
from gpu_doctor.trials.knobs.loader import MOST_AT_ONCE, whole_number


class Threads:
    """See `Knob`."""

    name = "threads"
    label = "torch threads"
    safety = Safety.SAFE
    changes = "Sums are added up in another order, so the last digits of the losses differ."
    front = False
    written_with = ""

    def found(self, setup: Setup) -> int | None:
        return setup.torch_threads

    def choices(self, setup: Setup) -> tuple[Choice, ...]:
        most = max(1, round(setup.usable_cores))
        counts = {most, setup.torch_threads or most, *(2**power for power in range(10) if 2**power <= most)}
        return tuple(Choice(count, str(count), self.refusal(count, setup)) for count in sorted(counts))

    def parsed(self, text: str) -> int:
        return whole_number(text, self.name, 1, MOST_AT_ONCE)

    def refusal(self, value: SettingValue, setup: Setup) -> str:
        return "" if int(value) >= 1 else "threads must be at least 1."

    def turned(self, value: SettingValue, scope: TrialScope) -> AbstractContextManager[None]:
        return _turned(int(value), scope)

    def code(self, value: SettingValue, setup: Setup) -> str:
        return f"torch.set_num_threads({int(value)})"

    def edit(self, settings: Settings, draft: Draft) -> Edits:
        return switched(draft.cells, self.name, settings[self.name])


KNOB = Threads()


@contextmanager
def _turned(count: int, scope: TrialScope) -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    held = _Held(count)
    patches = Patches()
    try:
        with patches:
            patches.wrap(torch, "set_num_threads", held.instead_of)
            yield
    finally:
        held.on = False
        if (now := torch.get_num_threads()) != count:
            scope.notes.append(f"threads: the code set {now} threads and replaced the trial's {count}.")
        torch.set_num_threads(before)
        scope.notes.extend((*held.notes, *patches.notes))


class _Held:
    """Keeps the number of threads where the knob put it; a call that torch would refuse is torch's to refuse."""

    def __init__(self, count: int) -> None:
        self.count, self.on, self.notes = count, True, list[str]()

    def instead_of(self, original: Callable[..., None]) -> Callable[..., None]:
        """What stands for `torch.set_num_threads` meanwhile; a name that the code keeps of it works on afterwards."""

        def set_num_threads(*args: Any, **named: Any) -> None:
            plain = len(args) == 1 and not named and type(args[0]) is int and args[0] > 0
            if not self.on or not plain:
                original(*args, **named)
            elif args[0] != self.count and not self.notes:
                self.notes.append(f"threads: the code sets {args[0]} threads; the trial kept {self.count}.")

        return set_num_threads
