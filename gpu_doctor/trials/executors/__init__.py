"""Where trials run: in the kernel, which takes turns, or on the machines of a cluster side by side."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Protocol

from gpu_doctor.recording import Settings
from gpu_doctor.trials import race
from gpu_doctor.trials.compare.effect import Effect
from gpu_doctor.trials.executors.ray import RayExecutor
from gpu_doctor.trials.rounds import MOST_PAIRS
from gpu_doctor.trials.runner import Runner

__all__ = ["Executor", "InKernel", "RayExecutor"]


class Executor(Protocol):
    """Something that tries settings on a case's code, somewhere."""

    @property
    def width(self) -> int:
        """How many trials run at once."""
        ...

    def trials(
        self,
        case: Any,
        candidates: Sequence[Settings],
        *,
        steps: int,
        seconds: float,
        against: Settings,
        pairs: int = MOST_PAIRS,
    ) -> list[Effect]:
        """Tries each candidate against `against`; the kernel's namespace is afterwards as it was.

        Args:
            case: a `Case`, whose code.
            candidates: knob values to try. Of several one is wanted: what is clearly worse than the best of them may be
                given up, with that as the effect's `reason`.
            against: those of the baseline side.
            steps: of one side of one round.
            seconds: of one candidate's trial.
            pairs: of runs, at most, of one candidate.
            An executor of your own may leave the last one out: it is asked without it then. One that takes `pasted` as
            well, as `Case.trial` does, is asked to run the changed cell in the last trial of a treatment.

        Returns:
            An effect for each candidate, in order, each kept in `case.effects` and `case.trials` as by `case.trial`.
            After a Stop, what was not begun has the outcome `stopped`.

        Raises:
            KeyboardInterrupt: if it is interrupted, after everything was put back and what there was was kept.
        """
        ...


class InKernel:
    """The default: trials in the kernel's own process, in turns, from the same state."""

    width = 1

    def trials(
        self,
        case: Any,
        candidates: Sequence[Settings],
        *,
        steps: int,
        seconds: float,
        against: Settings,
        pairs: int = MOST_PAIRS,
        pasted: bool = False,
    ) -> list[Effect]:
        """Several take turns, and the clearly worse ones are given up."""
        how: dict[str, Any] = {"against": against, "pairs": pairs, "pasted": pasted}
        return race.tried(case, candidates, steps=steps, seconds=seconds, **how)


def width_for(executor: Executor, case: Runner) -> int:
    """How many trials of a case run at once, at least 1: of a cluster, by what one asks for, which it may tell."""
    told = getattr(executor, "width_for", None)
    return max(int(told(case)) if callable(told) else int(executor.width), 1)


def tried(
    executor: Executor,
    case: Runner,
    candidates: Sequence[Settings],
    *,
    pairs: int = MOST_PAIRS,
    pasted: bool = False,
    **budget: Any,
) -> list[Effect]:
    """See `Executor.trials`; one of somebody's own is asked without the parameters that it does not know."""
    known = inspect.signature(executor.trials).parameters
    every = any(one.kind is one.VAR_KEYWORD for one in known.values())
    asked = {"pairs": pairs, **({"pasted": True} if pasted else {})}
    budget |= {name: value for name, value in asked.items() if every or name in known}
    return executor.trials(case, candidates, **budget)
