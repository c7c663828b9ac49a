"""Vitals of torch.compile: which functions it compiled again and again, and what that took after the warm-up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gpu_doctor.recording import Setup, Steps
from gpu_doctor.recording.setup import Compilation

FEW: Final = 2
"""Recompilations of a function that a sound loop has: one for sizes that vary (torch's own `automatic_dynamic_shapes`
makes it after the first change), one for the grad mode of an evaluation."""


@dataclass(frozen=True)
class Recompiled:
    """A function that was compiled more than once."""

    versions: tuple[Compilation, ...]
    """All but the first, oldest first."""
    share: float
    """Their seconds after the warm-up over the wall-clock after it, 0..1."""

    @property
    def given_up(self) -> bool:
        """Torch has stopped compiling it: it runs as it is written."""
        return any(one.given_up for one in self.versions)


def compiling(setup: Setup, rest: Steps) -> dict[str, tuple[Recompiled, ...] | None]:
    """What is read off a recording for the field `recompiled` of Vitals, dearest first; None = nobody listened.

    Args:
        setup: of a run or a trial.
        rest: its training steps after the warm-up, at least one.
    """
    if setup.compilations is None:
        return {"recompiled": None}
    begin_s, end_s = float(rest.start_s[0]), rest.end_s
    functions: dict[tuple[str, str, int], list[Compilation]] = {}
    for one in setup.compilations:
        if one.reason:
            functions.setdefault((one.file, one.function, one.line), []).append(one)
    wall_s = float(rest.wall_s.sum())
    found = [
        Recompiled(
            tuple(versions),
            min(sum(one.wall_s for one in versions if begin_s <= one.at_s < end_s) / wall_s, 1.0),
        )
        for versions in functions.values()
    ]
    return {"recompiled": tuple(sorted(found, key=lambda one: -one.share))}


def often(recompiled: Iterable[Recompiled] | None) -> list[Recompiled]:
    """Functions that were compiled more often than a sound loop needs, dearest first."""
    return [one for one in recompiled or () if len(one.versions) > FEW]


def again_share(recompiled: Iterable[Recompiled] | None) -> float:
    """Their share of the wall-clock after the warm-up, 0..1."""
    return min(sum(one.share for one in often(recompiled)), 1.0)
