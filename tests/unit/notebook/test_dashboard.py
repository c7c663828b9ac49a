"""The dashboard: what goes to the page, how it ends, and that a failing view fails alone. No page, no kernel."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gpu_doctor import knobs
from gpu_doctor.feed import Replay
from gpu_doctor.notebook.bokeh_view import script
from gpu_doctor.notebook.dashboard import Dashboard
from gpu_doctor.notebook.panel import PanelInput
from tests.support.panel_parts import shown, starved


class Bench:
    """A dashboard over a replay, whose messages are kept instead of sent."""

    def __init__(self) -> None:
        self.recording = starved(gpu=True, steps=100)
        self.replay = Replay(self.recording, 1.0)
        self.input = PanelInput(status="recording", setup=self.recording.setup)
        self.requests: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.messages: list[dict[str, Any]] = []
        self.page: dict[str, list[float]] = {}
        self.dashboard = Dashboard(self.look, self.requests.append, knobs.KNOBS, note=self.notes.append, gpus=(0,))
        self.dashboard.view.send = self.send
        self.failing: Exception | None = None

    def look(self) -> PanelInput:
        if self.failing is not None:
            raise self.failing
        return self.input

    def send(self, content: dict[str, Any], buffers: Any = None) -> None:
        """Does what the page does with a message."""
        self.messages.append(content)
        self.take(content["rows"], buffers[0])

    def take(self, head: dict[str, Any], data: bytes) -> None:
        values, at = np.frombuffer(data, "<f4"), 0
        for name in list(self.page):
            if name.partition(":")[0] in head["clear"]:
                self.page[name] = []
        for layer, key, count, whole in head["lines"]:
            y = values[at + count : at + 2 * count].tolist()
            self.page[f"{layer}:{key}"] = y if whole else self.page[f"{layer}:{key}"] + y
            at += 2 * count
        assert at == len(values)


@pytest.fixture
def bench() -> Iterator[Bench]:
    one = Bench()
    yield one
    one.dashboard.stop()
    one.dashboard.view.close()


def test_rows_go_to_the_page_in_increments(bench: Bench) -> None:
    bench.dashboard.follow(bench.replay)
    bench.dashboard.push()
    first = len(bench.page["base:step"])
    bench.replay.until_s = 2.0
    bench.dashboard.push()
    assert 20 <= first < len(bench.page["base:step"]) <= 50
    assert bench.messages[-1]["rows"]["lines"][0][3] is False
    assert not bench.dashboard.failure


def test_only_what_changed_of_the_state_is_sent(bench: Bench) -> None:
    bench.dashboard.push()
    bench.dashboard.push()
    assert "knobs" in bench.messages[0]["state"]
    assert bench.messages[1]["state"] == {}
    bench.input = shown(bench.recording, message="Done.")
    bench.dashboard.push()
    assert {"message", "verdict", "table"} <= bench.messages[2]["state"].keys()


def test_a_candidate_is_laid_over_its_baseline_and_a_run_clears_both(bench: Bench) -> None:
    bench.replay.until_s = None
    bench.dashboard.follow(bench.replay, "baseline")
    bench.dashboard.push()
    candidate = Replay(starved(wait_s=0.001, steps=30))
    candidate.settings = {"num_workers": 4}  # type: ignore[attr-defined]
    bench.dashboard.follow(candidate, "candidate")
    bench.dashboard.push()
    assert len(bench.page["base:step"]) == 100 and len(bench.page["trial:step"]) == 30
    assert bench.messages[-1]["rows"]["names"] == {"base": "as written", "trial": "num_workers=4"}
    bench.dashboard.follow(Replay(starved(steps=10)), "run")
    bench.dashboard.push()
    assert len(bench.page["base:step"]) == 10 and bench.page["trial:step"] == []


def test_the_end_is_written_down_for_a_page_that_is_loaded_later(bench: Bench) -> None:
    bench.dashboard.follow(bench.replay)
    bench.dashboard.push()
    bench.replay.until_s = None
    bench.input = shown(bench.recording)
    bench.dashboard.last()
    live = {name: list(values) for name, values in bench.page.items()}
    bench.page.clear()
    written = bench.dashboard.view.rows
    bench.take(written["head"], written["data"])
    assert bench.page == live
    assert len(bench.page["base:step"]) == 100
    assert bench.dashboard.view.state["verdict"]["kind"] == "input-bound"


def test_a_page_that_missed_the_begin_gets_everything(bench: Bench) -> None:
    bench.dashboard.follow(bench.replay)
    bench.dashboard.push()
    bench.page.clear()
    bench.dashboard._asked({"ask": "rows"})
    assert len(bench.page["base:step"]) >= 20
    assert "verdict" in bench.messages[-1]["state"]


def test_a_failing_view_says_so_once_and_stops(bench: Bench) -> None:
    bench.failing = RuntimeError("no room")
    bench.dashboard.push()
    bench.dashboard.push()
    bench.dashboard.last()
    assert bench.dashboard.failure.startswith("The live view stopped (RuntimeError: no room)")
    assert bench.notes == [bench.dashboard.failure]
    assert bench.messages == []


def test_a_run_after_a_failure_gets_another_chance(bench: Bench) -> None:
    bench.failing = RuntimeError("no room")
    bench.dashboard.push()
    bench.failing = None
    bench.dashboard.start()
    deadline = time.monotonic() + 5
    while not bench.messages and time.monotonic() < deadline:
        time.sleep(0.01)
    bench.dashboard.stop()
    assert bench.messages and not bench.dashboard.failure


def test_the_refresher_is_one_thread_of_ours_that_ends_and_counts_its_cost(bench: Bench) -> None:
    bench.dashboard.start()
    bench.dashboard.start()
    names = [thread.name for thread in threading.enumerate() if thread.name == "gpu_doctor-refresher"]
    assert len(names) == 1
    deadline = time.monotonic() + 5
    while bench.dashboard.cpu_s == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    bench.dashboard.stop()
    assert "gpu_doctor-refresher" not in {thread.name for thread in threading.enumerate()}
    assert 0 < bench.dashboard.cpu_s < 5


def test_two_pushers_never_interleave(bench: Bench) -> None:
    inside, most, release = 0, 0, threading.Event()

    def look() -> PanelInput:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        release.wait(5)
        inside -= 1
        return bench.input

    bench.dashboard._look = look
    other = threading.Thread(target=bench.dashboard.push)
    other.start()
    deadline = time.monotonic() + 5
    while not inside and time.monotonic() < deadline:
        time.sleep(0.001)
    bench.dashboard.push()
    release.set()
    other.join()
    assert most == 1 and len(bench.messages) == 1


def test_requests_are_posted_and_bad_ones_answered(bench: Bench) -> None:
    bench.dashboard._asked({"ask": "trial", "settings": {"num_workers": 2}, "steps": 30})
    assert bench.requests == [{"ask": "trial", "settings": {"num_workers": 2}, "steps": 30, "changes_training": False}]
    bench.dashboard._asked({"ask": "trial", "settings": {"num_worker": 2}})
    assert bench.messages[-1]["state"]["message"] == "There is no knob named 'num_worker'."
    assert len(bench.requests) == 1


def test_a_quantity_nobody_expected_is_drawn_from_its_first_reading(bench: Bench) -> None:
    host = Dashboard(bench.look, bench.requests.append, knobs.KNOBS, gpus=())
    host.view.send = bench.send
    before = {line["key"] for plot in host.view.figure["plots"] for line in plot["lines"]}
    assert "gpu_util_pct@0" not in before
    host.follow(bench.replay)
    host.push()
    after = {line["key"] for plot in host.view.figure["plots"] for line in plot["lines"]}
    assert {"gpu_util_pct@0", "hidden"} <= after
    host.view.close()


def test_the_script_holds_bokeh_and_reaches_for_nothing_else() -> None:
    own = script().split("\n", 2)[2]
    assert "BOKEH_SOURCE" in script()[:200]
    for forbidden in ("http:", "https:", "innerHTML", "insertAdjacentHTML", "document.write", "import("):
        assert forbidden not in own
