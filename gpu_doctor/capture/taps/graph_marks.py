"""Detects autograd graphs of earlier steps that stay alive: a mark on one node of a graph dies with the node.

Nothing is kept alive: the node holds the mark in its own `metadata`, and we hold a weak reference to the mark. Code
that keeps a loss, a sum of losses or an output keeps all nodes behind it, also the one that made the model's output.
"""

from __future__ import annotations

import weakref
from typing import Any, Final

from gpu_doctor.capture.describe.batches import tensors_in
from gpu_doctor.recording.setup import KeptGraphs

MOST_MARKS: Final = 256
"""Maximum number of graphs that are marked."""
KEY: Final = "gpu_doctor"
"""Key of the mark in a node's metadata."""


class Mark:
    """Mark that lives as long as the node that holds it."""

    __slots__ = ("__weakref__",)


class GraphMarks:
    """Marks on the graphs of one kind of forwards, and how many of the graphs are still alive."""

    def __init__(self) -> None:
        self._marks: list[tuple[int, weakref.ref[Mark]]] = []
        """Each mark with the step of its graph."""
        self.found: KeptGraphs | None = None
        """Result of the last count; None before the first."""

    def put(self, output: Any, step: int) -> None:
        """Marks the graph of a forward that has just returned, if it recorded one."""
        node = next((tensor.grad_fn for tensor in tensors_in(output) if tensor.grad_fn is not None), None)
        metadata = getattr(node, "metadata", None)
        if isinstance(metadata, dict) and len(self._marks) < MOST_MARKS:
            mark = Mark()
            metadata[KEY] = mark
            self._marks.append((step, weakref.ref(mark)))

    def count_alive(self) -> None:
        """Counts the steps whose graphs are alive; called between two windows, when the newest is many steps old."""
        if self._marks:
            alive = {step for step, mark in self._marks if mark() is not None}
            self.found = KeptGraphs(len({step for step, _ in self._marks}), len(alive))
