"""What starting worker processes, their first batch and their end take at the edges of a loader's epochs, as sums."""

from __future__ import annotations


class Edges:
    """The edges of one loader at which workers were started; those that stay from epoch to epoch have one."""

    __slots__ = ("end_s", "ends", "first_s", "start_s", "starts")

    def __init__(self) -> None:
        self.starts = self.ends = 0
        self.start_s = self.first_s = self.end_s = 0.0

    def started(self, seconds: float) -> None:
        """`iter(loader)` has started the processes."""
        self.starts += 1
        self.start_s += seconds

    def began(self, seconds: float) -> None:
        """The first batch is there, so long after it was asked for."""
        self.first_s += seconds

    def ended(self, seconds: float) -> None:
        """The ask after the last batch has ended the processes, and waited for them."""
        self.ends += 1
        self.end_s += seconds
