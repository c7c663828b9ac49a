"""What watching a run may cost: one budget for the taps and for our own threads, shared out while the run goes on.

Most taps rest by themselves where steps are short and repeat (see `rests`). What they then still do comes first: what
it leaves of the budget is for the threads. Each says what it would take at its usual pace; where that is too much
together, all go slower by the same factor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gpu_doctor import formatting

BUDGET_SHARE: Final = 0.01
"""Own cost over the run's wall-clock, taps and threads together (the aim of benchmarks/overhead.py)."""
LEAST_SHARE: Final = 0.002
"""What the threads are left in any case, so that plots move and lines are seen: two milliseconds of a second."""
WINDOW_S: Final = 0.5
"""The taps' cost is looked at over so long: of a loop that has just begun, not of what the cell did before."""
SEARCHED_SHARE: Final = 0.1
"""Looking for models is done at the begin of a loop, as a rule: it is said where it does not end with that."""
WORTH_SAYING_S: Final = 1.0
"""Of a shorter loop the first steps, which cost more, are too large a part, and nobody waits for it."""
_BLEND: Final = 0.3


class Governor:
    """The budget of one run. Asked by the threads themselves, each in its own name; nobody waits for anybody."""

    def __init__(self, tapped_s: Callable[[], float], elapsed_s: Callable[[], float]) -> None:
        """Nothing is measured before the first question.

        Args:
            tapped_s: what the taps have cost so far, in host seconds. elapsed_s: of the run so far.
        """
        self._tapped_s, self._elapsed_s = tapped_s, elapsed_s
        self._seen = 0.0, 0.0
        self._wanted: dict[str, float] = {}
        self._taps_share: float | None = None

    @property
    def taps_share(self) -> float:
        """Part of the wall-clock that the taps take now."""
        at, tapped = self._elapsed_s(), self._tapped_s()
        last_at, last_tapped = self._seen
        if at - last_at >= WINDOW_S:
            self._seen = at, tapped
            now = max(tapped - last_tapped, 0.0) / (at - last_at)
            before = self._taps_share
            self._taps_share = now if before is None else before + _BLEND * (now - before)
        return self._taps_share or 0.0

    def allowed(self, who: str, wanted: float) -> float:
        """The part of one core that a thread may take.

        Args:
            who: asks. wanted: what it would take at its usual pace.

        Returns:
            At least `wanted` where all that is wanted fits, else less.
        """
        self._wanted[who] = max(wanted, 0.0)
        room = max(BUDGET_SHARE - self.taps_share, LEAST_SHARE)
        total = sum(self._wanted.copy().values())
        if total <= room:
            return room - (total - self._wanted[who])
        return room * self._wanted[who] / total


def too_dear(tapped_s: float, loop_s: float, steps: int, searched_s: float = 0.0) -> str:
    """A sentence where the taps alone cost more than the budget, which nothing can be done about; else empty.

    Args:
        tapped_s: what they cost. loop_s: wall-clock of all steps. steps: how many there were.
        searched_s: what looking for the models of new optimizers took, of the same wall-clock.
    """
    if loop_s >= WORTH_SAYING_S and searched_s > SEARCHED_SHARE * loop_s:
        return f"Looking for the models of its optimizers took {100 * searched_s / loop_s:.2g} % of this loop."
    if steps < 1 or loop_s < WORTH_SAYING_S or tapped_s <= BUDGET_SHARE * loop_s:
        return ""
    took = formatting.seconds(loop_s / steps)
    return f"Watching costs about {100 * tapped_s / loop_s:.2g} % of this loop, whose steps take {took}."
