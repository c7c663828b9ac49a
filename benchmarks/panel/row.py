"""A figure of the table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One figure beside its aim."""

    part: str
    what: str
    value: float
    unit: str
    aim: float | None = None
    """At most so much; None = told, not judged."""

    @property
    def missed(self) -> bool:
        """It is above its aim."""
        return self.aim is not None and not self.value <= self.aim

    def line(self) -> str:
        """The row of the table."""
        aim = "" if self.aim is None else f"{self.aim:,g}"
        verdict = "" if self.aim is None else "missed" if self.missed else "kept"
        return f"{self.part:<9}{self.what:<66}{self.value:>12,.5g} {self.unit:<8}{aim:>9}  {verdict}".rstrip()


def table(rows: Iterable[Row]) -> str:
    """All rows, with a head."""
    return "\n".join([f"{'part':<9}{'':<66}{'':>12} {'':<8}{'at most':>9}", *(row.line() for row in rows)])
