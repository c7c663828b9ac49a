"""Vitals of torch.compile: the functions it compiled more than once, and the time that took after the warm-up."""

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
    """Its compilations but the first, oldest first."""
    share: float
    """Share of the wall-clock after the warm-up that they took, 0..1."""

    @property
    def given_up(self) -> bool:
        """True if torch has stopped compiling the function, which then runs as plain Python."""
        return any(version.given_up for version in self.versions)


def compiling(setup: Setup, rest: Steps) -> dict[str, tuple[Recompiled, ...] | None]:
    """Computes the field `recompiled` of Vitals, costliest first; it is None if compilations were not recorded.

    Args:
        setup: setup of a run or a trial.
        rest: its training steps after the warm-up, at least one.
    """
    if setup.compilations is None:
        return {"recompiled": None}
    begin_s, end_s = float(rest.start_s[0]), rest.end_s
    functions: dict[tuple[str, str, int], list[Compilation]] = {}
    for compilation in setup.compilations:
        if compilation.reason:
            functions.setdefault((compilation.file, compilation.function, compilation.line), []).append(compilation)
    wall_s = float(rest.wall_s.sum())
    found = [
        Recompiled(
            tuple(versions),
            min(sum(version.wall_s for version in versions if begin_s <= version.at_s < end_s) / wall_s, 1.0),
        )
        for versions in functions.values()
    ]
    return {"recompiled": tuple(sorted(found, key=lambda function: -function.share))}


def recompiled_often(recompiled: Iterable[Recompiled] | None) -> list[Recompiled]:
    """Selects the functions that were compiled more often than a sound loop needs, costliest first."""
    return [function for function in recompiled or () if len(function.versions) > FEW]


def recompiled_share(recompiled: Iterable[Recompiled] | None) -> float:
    """Share of the wall-clock after the warm-up, 0..1, that recompiling the functions of `recompiled_often` took."""
    return min(sum(function.share for function in recompiled_often(recompiled)), 1.0)
