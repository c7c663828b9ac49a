"""Messages to the page are numbered: what is lost, repeated, swapped or missed by a reload is made up for."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import pytest

from gpu_doctor.recording import Replay
from gpu_doctor.report.contract import News, Whole
from gpu_doctor.report.panel import Progress
from tests.support.dashboard_parts import Bench
from tests.support.dashboard_parts import bench as bench
from tests.support.declared import differences
from tests.support.panel_parts import shown
from tests.support.recordings import starved


class Traits(Protocol):
    """What a page reads when it is loaded."""

    state: Any
    rows: Any


class FakePage:
    """Page without a browser: takes a panel's messages by the rules of `frontend/src/live.js`."""

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


class Scene:
    """A panel, and two pages of it: one with a perfect line, one whose line can be bad."""

    def __init__(self, bench: Bench, seed: int = 0) -> None:
        self.dashboard, self.bench = bench.dashboard, bench
        self.view = bench.dashboard.view
        self.good, self.line = Line(self.dashboard._asked), Line(self.dashboard._asked, seed)
        self.view.send = self.send
        self.good.page, self.line.page = FakePage(self.view), FakePage(self.view)
        self.dashboard.follow(bench.replay)

    @property
    def page(self) -> FakePage:
        assert self.line.page is not None
        return self.line.page

    def send(self, content: dict[str, Any], buffers: Any) -> None:
        self.good.send(content, buffers)
        self.line.send(content, buffers)

    def goes_on(self, until_s: float, message: str = "") -> None:
        """The run goes on, the panel is refreshed, and the kernel hears the page."""
        self.bench.replay.until_s = until_s
        self.bench.input = shown(self.bench.recording, status="recording", message=message)
        self.dashboard.push()
        self.line.answers()

    def reload(self) -> None:
        """The page is loaded anew, and asks as one does that was loaded while something runs."""
        self.line.page = FakePage(self.view)
        self.page.ask_for_all()

    def agree(self) -> bool:
        assert self.good.page is not None
        same_points = repr(self.page.points) == repr(self.good.page.points)  # a gap is NaN
        return same_points and self.page.state == self.good.page.state


@pytest.fixture
def scene(bench: Bench) -> Scene:
    return Scene(bench)


def test_every_message_has_the_next_number_and_the_declared_form(scene: Scene) -> None:
    for second in (1.0, 1.5, 2.0):
        scene.goes_on(second)
    scene.dashboard._asked({"ask": "state"})
    assert [(one["seq"], one["kind"]) for one in scene.line.sent] == [
        *((1, "news"), (2, "news"), (3, "news"), (4, "state"))
    ]
    for one in scene.line.sent[:3]:
        rows = {**one, "state": {}}
        assert list(differences(rows, News)) == []
    assert list(differences(scene.line.sent[3], Whole)) == []
    assert scene.agree()


def test_a_lost_message_is_noticed_by_the_next_and_made_up_for(scene: Scene) -> None:
    scene.goes_on(1.0)
    scene.line.page, kept = None, scene.page  # nobody hears the next
    scene.goes_on(1.5, "It is lost.")
    scene.line.page = kept
    scene.bench.replay.until_s = 2.0
    scene.dashboard.push()
    assert not scene.agree() and scene.page.asks == [{"ask": "state"}]
    scene.line.answers()
    assert scene.agree() and scene.page.asks == [] and scene.line.sent[-1]["kind"] == "state"
    scene.goes_on(2.5)
    assert scene.agree() and scene.line.sent[-1]["kind"] == "news"


@pytest.mark.parametrize("seed", range(12))
def test_a_bad_line_leaves_no_page_stale_once_it_is_good_again(bench: Bench, seed: int) -> None:
    scene = Scene(bench, seed)
    scene.line.bad = True
    for number in range(12):
        scene.goes_on(0.5 + 0.1 * number, f"message {number // 2}")
    candidate = Replay(starved(wait_s=0.001, steps=30))
    scene.dashboard.follow(candidate, "candidate")
    for number in range(4):
        scene.goes_on(2.0 + 0.1 * number)
    scene.line.bad = False
    for number in range(4):
        if scene.agree():
            break
        scene.goes_on(2.5 + 0.01 * number)
    assert scene.agree()
    scene.goes_on(4.0, "the end")
    assert scene.agree() and scene.line.sent[-1]["kind"] == "news"


def test_a_page_that_is_loaded_in_the_middle_of_a_run_has_all_of_it(scene: Scene) -> None:
    for second in (1.0, 1.5):
        scene.goes_on(second)
    scene.reload()
    assert scene.page.points == {}
    scene.line.answers()
    assert scene.agree() and len(scene.page.points["base:step"]) > 30
    scene.goes_on(2.0, "It goes on.")
    assert scene.agree() and scene.page.state["message"] == "It goes on."


def test_a_page_that_is_loaded_in_the_middle_of_a_trial_has_both_sides(scene: Scene) -> None:
    scene.goes_on(5.0)
    scene.dashboard.last(shown(scene.bench.recording))
    base, candidate = Replay(starved(steps=40), 0.81), Replay(starved(wait_s=0.001, steps=30), 0.2)
    scene.dashboard.follow(base, "baseline")
    scene.dashboard.push()
    scene.dashboard.follow(candidate, "candidate")
    progress = Progress(12, 50, 8.4, "round 1, until it is clear: candidate")
    scene.bench.input = shown(scene.bench.recording, status="trial", progress=progress)
    scene.dashboard.push()
    scene.reload()
    assert len(scene.page.points["base:step"]) == 100 and not scene.page.state["busy"], "as it was written down"
    scene.line.answers()
    assert scene.agree()
    assert len(scene.page.points["base:step"]) == 20 and len(scene.page.points["trial:step"]) == 18
    assert scene.page.state["header"]["progress"]["steps"] == "step 12 of 50"


def test_a_page_that_is_loaded_later_reads_what_was_written_down_and_misses_nothing(scene: Scene) -> None:
    scene.goes_on(5.0)
    scene.dashboard.last()
    scene.line.page = FakePage(scene.view)
    assert scene.agree()
    scene.bench.input = shown(scene.bench.recording, message="A knob was turned.")
    scene.dashboard.push()
    assert scene.agree() and scene.page.asks == []


class Waited:
    """A lock that writes down who would wait for it."""

    def __init__(self) -> None:
        self.waits: list[bool] = []

    def acquire(self, blocking: bool = True) -> bool:
        self.waits.append(blocking)
        return True

    def release(self) -> None:
        pass


def test_an_answer_waits_for_a_refresh_that_is_under_way_and_a_refresh_does_not(scene: Scene) -> None:
    lock = scene.dashboard._pushing = Waited()  # type: ignore[assignment]
    scene.goes_on(1.0)
    scene.reload()
    scene.line.answers()
    assert lock.waits == [False, True] and scene.agree()


def test_a_view_that_failed_answers_why(scene: Scene) -> None:
    scene.goes_on(1.0)
    scene.bench.failing = RuntimeError("no room")
    scene.dashboard.push()
    scene.reload()
    scene.line.answers()
    assert scene.page.state["message"].startswith("The live view stopped (RuntimeError: no room)")
    assert list(differences(scene.line.sent[-1], Whole)) == []


def test_the_figures_are_sent_again_with_all(scene: Scene) -> None:
    again: list[Any] = []
    scene.view.send_state = again.append
    scene.goes_on(1.0)
    assert again == []
    scene.dashboard._asked({"ask": "state"})
    assert again == ["figure"]
