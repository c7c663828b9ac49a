"""A cache for one panel, which refreshes twice a second although hardly anything has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from gpu_doctor.report.contract import ForecastShown, KnobShown

Found = TypeVar("Found")


class Recent(Generic[Found]):
    """A cache of one value, together with the inputs it was computed from."""

    def __init__(self) -> None:
        """Starts an empty cache."""
        self._known: tuple[tuple[object, ...], object, Found] | None = None

    def of(self, alive: tuple[object, ...], about: object, make: Callable[[], Found]) -> Found:
        """Returns the cached value if its inputs have not changed, else computes and caches it.

        Args:
            alive: inputs compared by identity; the cache holds references to them.
            about: input compared by equality.
            make: computes the value.
        """
        if self._known is None or not _same(self._known[0], alive) or self._known[1] != about:
            self._known = alive, about, make()
        return self._known[2]


class Memory:
    """The caches of one panel."""

    def __init__(self) -> None:
        """Starts with empty caches."""
        self.controls: Recent[tuple[KnobShown, ...]] = Recent()
        self.forecasts: Recent[tuple[ForecastShown, ...]] = Recent()


def _same(some: tuple[object, ...], others: tuple[object, ...]) -> bool:
    return len(some) == len(others) and all(first is second for first, second in zip(some, others, strict=True))
