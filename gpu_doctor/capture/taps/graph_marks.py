"""Whether the graphs of earlier steps are still there: a mark on a node of each of some graphs dies with the node.

Nothing is kept alive: a node holds the mark in its own `metadata`, we hold a weak reference to the mark. Who keeps a
loss, a sum of losses or an output keeps the nodes behind it, the one that made the model's output among them.
"""

from __future__ import annotations

import weakref
from typing import Any, Final

from gpu_doctor.capture.describe.batches import tensors_in
from gpu_doctor.recording.setup import KeptGraphs

MOST_MARKS: Final = 256
"""Graphs that are marked, at most."""
KEY: Final = "gpu_doctor"


class Mark:
    """Lives as long as the node that holds it."""

    __slots__ = ("__weakref__",)


class GraphMarks:
    """The graphs marked so far, of one kind of forwards, and how many of them were last seen alive."""

    def __init__(self) -> None:
        self._marks: list[tuple[int, weakref.ref[Mark]]] = []
        """The step, and its mark."""
        self.found: KeptGraphs | None = None
        """As of the last look."""

    def put(self, output: Any, step: int) -> None:
        """Marks the graph of a forward that has just returned, if it recorded one."""
        node = next((one.grad_fn for one in tensors_in(output) if one.grad_fn is not None), None)
        held = getattr(node, "metadata", None)
        if isinstance(held, dict) and len(self._marks) < MOST_MARKS:
            mark = Mark()
            held[KEY] = mark
            self._marks.append((step, weakref.ref(mark)))

    def look(self) -> None:
        """Counts those alive; between two windows, so that the newest graph is many steps old."""
        if self._marks:
            alive = {step for step, mark in self._marks if mark() is not None}
            self.found = KeptGraphs(len({step for step, _ in self._marks}), len(alive))
