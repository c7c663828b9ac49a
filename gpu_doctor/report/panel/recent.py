"""What was worked out for one panel: it asks twice a second, and hardly anything has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from gpu_doctor.report.contract import ForecastShown, KnobShown

Found = TypeVar("Found")


class Recent(Generic[Found]):
    """The newest answer, and what it is about."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._known: tuple[tuple[object, ...], object, Found] | None = None

    def of(self, alive: tuple[object, ...], about: object, make: Callable[[], Found]) -> Found:
        """The answer that is known if it is about the same, else what `make` gives now.

        Args:
            alive: objects that must be the same ones; they are kept as long as the answer is.
            about: a value that must be equal.
            make: works the answer out.
        """
        if self._known is None or not _same(self._known[0], alive) or self._known[1] != about:
            self._known = alive, about, make()
        return self._known[2]


class Memory:
    """The newest answers of one panel; they go with it."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.controls: Recent[tuple[KnobShown, ...]] = Recent()
        self.forecasts: Recent[tuple[ForecastShown, ...]] = Recent()


def _same(some: tuple[object, ...], others: tuple[object, ...]) -> bool:
    return len(some) == len(others) and all(one is other for one, other in zip(some, others, strict=True))
