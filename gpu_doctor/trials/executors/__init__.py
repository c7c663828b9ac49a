"""Where trials run: in the kernel, which takes turns, or on the machines of a cluster side by side."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Protocol

from gpu_doctor.recording import Settings, describe
from gpu_doctor.trials import race
from gpu_doctor.trials.compare.effect import Effect
from gpu_doctor.trials.executors.ray import RayExecutor
from gpu_doctor.trials.rounds import MOST_PAIRS
from gpu_doctor.trials.runner import Runner

__all__ = ["Executor", "InKernel", "RayExecutor"]


class Executor(Protocol):
    """Something that tries settings on a case's code, somewhere."""

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
            candidates: knob values to try. Of several, what is clearly worse than the best of them may be given up,
                with that as the effect's `reason`.
            against: those of the baseline side.
            steps: of one side of one round.
            seconds: of one candidate's trial.
            pairs: of runs, at most, of one candidate.
            An executor of your own may leave the last one out: it is asked without it then.

        Returns:
            An effect for each candidate, in order, each kept in `case.effects` and `case.trials` as by `case.trial`.
            After a Stop, what was not begun has the outcome `stopped`.

        Raises:
            KeyboardInterrupt: if it is interrupted, after everything was put back and what there was was kept.
        """
        ...


class InKernel:
    """The default: trials in the kernel's own process, one after another, from the same state."""

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
        """See `Executor.trials`; each candidate is judged to its end."""
        how: dict[str, Any] = {"against": against, "pairs": pairs}
        effects = []
        for one in candidates:
            label = f"{describe(one)}: " if len(candidates) > 1 else ""
            effects.append(race.tried(case, one, steps=steps, seconds=seconds, label=label, **how))
        return effects


def tried(
    executor: Executor,
    case: Runner,
    candidates: Sequence[Settings],
    *,
    pairs: int = MOST_PAIRS,
    **budget: Any,
) -> list[Effect]:
    """See `Executor.trials`; one of somebody's own is asked without the parameters that it does not know."""
    known = inspect.signature(executor.trials).parameters
    every = any(one.kind is one.VAR_KEYWORD for one in known.values())
    if every or "pairs" in known:
        budget["pairs"] = pairs
    return executor.trials(case, candidates, **budget)
