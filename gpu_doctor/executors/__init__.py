"""Where trials run: in the kernel one after another, or on the machines of a cluster side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from gpu_doctor import race
from gpu_doctor.effect import Effect
from gpu_doctor.recording import Settings

if TYPE_CHECKING:
    from gpu_doctor.casefile import Case
    from gpu_doctor.executors.ray import RayExecutor as RayExecutor

__all__ = ["Executor", "InKernel", "RayExecutor"]


class Executor(Protocol):
    """Something that tries settings on a case's code, somewhere."""

    @property
    def width(self) -> int:
        """How many trials run at once."""
        ...

    def trials(
        self,
        case: Case,
        candidates: Sequence[Settings],
        *,
        steps: int,
        seconds: float,
        against: Settings,
        racing: bool = False,
    ) -> list[Effect]:
        """Tries each candidate against `against`; the kernel's namespace is afterwards as it was.

        Args:
            case: whose code. candidates: knob values to try. against: those of the baseline side.
            steps: of one side of one round. seconds: of one candidate's trial.
            racing: give up what is clearly worse than the best of them (they are alternatives, one is wanted).

        Returns:
            An effect for each candidate, in order, each kept in `case.effects` and `case.trials` as by `case.trial`.
            After a Stop, what was not begun has the outcome `stopped`.

        Raises:
            KeyboardInterrupt: if it is interrupted, after everything was put back and what there was was kept.
        """
        ...


class InKernel:
    """The default: trials in the kernel's own process, one at a time, from the same state."""

    width = 1

    def trials(
        self,
        case: Case,
        candidates: Sequence[Settings],
        *,
        steps: int,
        seconds: float,
        against: Settings,
        racing: bool = False,
    ) -> list[Effect]:
        """One trial after another; racing, they take turns and the clearly worse ones are given up."""
        if racing:
            return race.tried(case, candidates, steps=steps, seconds=seconds, against=against)
        effects: list[Effect] = []
        for candidate in candidates:
            if effects and case.stopped:  # each trial begins by forgetting the Stop of the one before
                case.effects.append(Effect(dict(candidate), dict(against), outcome="stopped"))
                effects.append(case.effects[-1])
            else:
                effects.append(case.trial(candidate, steps=steps, seconds=seconds, against=against))
        return effects


def __getattr__(name: str) -> Any:
    """`RayExecutor` is met when it is asked for: its module and Ray are no part of a plain installation."""
    if name == "RayExecutor":
        from gpu_doctor.executors.ray import RayExecutor

        return RayExecutor
    raise AttributeError(f"module 'gpu_doctor.executors' has no attribute {name!r}")
