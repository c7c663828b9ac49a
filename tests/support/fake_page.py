"""A page without a browser: it takes a panel's messages by the rules of `frontend/src/live.js`, and asks for all where
it misses one; and a line to it that loses, repeats and swaps messages."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np


class Traits(Protocol):
    """What a page reads when it is loaded."""

    state: Any
    rows: Any


class FakePage:
    """What one page knows of a panel."""

    def __init__(self, traits: Traits) -> None:
        """Loads the page: it reads what is written down."""
        self.state: dict[str, Any] = dict(traits.state)
        self.points: dict[str, list[float]] = {}
        self.asks: list[dict[str, Any]] = []
        """Not yet heard by the kernel."""
        rows = traits.rows or {}
        self.last = rows.get("seq", 0)
        if "head" in rows:
            self._take(rows["head"], rows["data"])

    def hear(self, message: dict[str, Any], data: bytes) -> None:
        """A message as it comes."""
        seq, whole = message["seq"], message["kind"] == "state"
        old = seq < self.last if whole else seq <= self.last
        if old if whole else seq > self.last + 1:
            self.ask_for_all()
        if old:
            return
        self.last = seq
        self.state = message["state"] if whole else {**self.state, **message["state"]}
        self._take(message["rows"], data)

    def ask_for_all(self) -> None:
        """Posts the question for all."""
        self.asks.append({"ask": "state"})

    def _take(self, head: dict[str, Any], data: bytes) -> None:
        values, at = np.frombuffer(data, "<f4"), 0
        for name in list(self.points):
            if name.partition(":")[0] in head["clear"]:
                del self.points[name]
        for layer, key, count, whole in head["lines"]:
            y = values[at + count : at + 2 * count].tolist()
            name = f"{layer}:{key}"
            self.points[name] = y if whole else self.points.get(name, []) + y
            at += 2 * count
        assert at == len(values)


class Line:
    """The way from a kernel to its page and back; everything on it is JSON."""

    def __init__(self, hears: Callable[[Any], None], seed: int = 0) -> None:
        """`hears`: the kernel takes a message of the page."""
        self.page: FakePage | None = None
        self.bad = False
        """It loses, repeats and swaps messages now."""
        self.sent: list[dict[str, Any]] = []
        self._hears = hears
        self._chance = random.Random(seed)
        self._late: list[tuple[str, bytes]] = []

    def send(self, content: dict[str, Any], buffers: Sequence[bytes] = ()) -> None:
        """The widget's `send`."""
        self.sent.append(content)
        told = json.dumps(content, allow_nan=False), bytes(buffers[0])
        fate = self._chance.random() if self.bad else 1.0
        if fate < 0.25:
            return
        if fate < 0.5:
            self._late.append(told)
            return
        late, self._late = self._late, []
        for one in [told, *late] if fate > 0.6 else [told, told, *late]:
            self._hear(one)

    def answers(self) -> None:
        """The kernel hears what the page has asked for."""
        if self.page is None:
            return
        asks, self.page.asks = self.page.asks, []
        for ask in asks:
            self._hears(json.loads(json.dumps(ask)))

    def _hear(self, told: tuple[str, bytes]) -> None:
        if self.page is not None:
            self.page.hear(json.loads(told[0]), told[1])
