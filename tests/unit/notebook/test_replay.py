"""A recording is played in the panel of its cell: in recorded time, by the panel's own means, to the whole of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ipywidgets
import pytest

import gpu_doctor
from gpu_doctor.notebook import replay as face
from gpu_doctor.notebook.live_view import Dashboard
from gpu_doctor.notebook.replaying import IN_PROPORTION, NO_LOOP, PERIOD_S, Replaying
from gpu_doctor.recording import Recording
from tests.support.recordings import starved
from tests.support.repository import ROOT

SAVED = ROOT / "tests" / "unit" / "recording" / "saved" / "starved-on-a-cpu.npz"


class Played(Replaying):
    """One whose clock goes on where it waits, and whose messages are kept."""

    def __init__(self, recording: Recording, speed: float = 20.0) -> None:
        self.now_s, self.news, self.rows, self.results = 100.0, list[dict[str, Any]](), list[int](), list[str]()
        self.while_waiting: Callable[[Played], None] = lambda played: None
        shell: Any = SimpleNamespace(kernel=SimpleNamespace())
        super().__init__(shell, recording, speed, lambda: self.now_s, self.waited)
        self._screen.show_result = lambda shown: self.results.append(repr(shown))  # type: ignore[method-assign]

    def waited(self, seconds: float) -> None:
        self.now_s += seconds
        self.while_waiting(self)

    def _dashboard(self) -> Dashboard:
        made = super()._dashboard()
        made.view.send = self.sent
        return made

    def sent(self, content: dict[str, Any], buffers: Any = None) -> None:
        self.news.append(content["state"])
        self.rows.append(sum(count for _, key, count, _ in content["rows"]["lines"] if key == "step"))

    @property
    def state(self) -> dict[str, Any]:
        """What the page would have now."""
        written = dict(self._screen.panel.view.state) if self._screen.panel is not None else {}
        return written | {name: piece for news in self.news for name, piece in news.items()}

    def told(self, section: str, name: str) -> list[Any]:
        """What was said of something, in order."""
        return [one[section][name] for one in self.news if section in one]


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    ipywidgets.Widget.close_all()
    assert set(threading.enumerate()) <= before


def test_it_is_played_in_recorded_time_and_ends_with_the_whole() -> None:
    played = Played(starved(gpu=True, steps=1000), speed=20)
    begin = played.now_s
    played.run()
    assert played.now_s - begin == pytest.approx(40 / 20)
    clocks = played.told("header", "clock")
    assert clocks[:3] == ["00:00", "00:05", "00:10"] and clocks[-1] == "00:40"
    so_far = list(accumulate(played.rows))
    assert all(abs(one - 125 * number) <= 1 for number, one in enumerate(so_far)) and so_far[-1] == 1000
    assert [one["status"] for one in played.news if "status" in one] == ["replaying", "idle"]


def test_the_verdict_comes_as_it_came() -> None:
    played = Played(starved(gpu=True, steps=1000), speed=0.5)
    played.run()
    told = list(dict.fromkeys(played.told("verdict", "text")))
    assert "Listening to the loop" in told[0] and "waits for data" in told[-1]
    assert "early: " in "".join(played.told("verdict", "early")), "it was called early first"
    assert played.state["verdict"]["early"] == ""


def test_the_header_says_that_it_is_a_replay_of_what_and_how_fast() -> None:
    played = Played(starved(gpu=True, name="nightly"), speed=2.5)
    played.run()
    header = played.state["header"]
    assert (header["replay"], header["name"], header["status"]) == ("replay at 2.5x", "nightly", "finished")
    assert "NVIDIA H200" in header["machine"]


def test_knobs_answer_with_forecasts_and_trials_need_the_loop() -> None:
    played = Played(gpu_doctor.load(SAVED), speed=1000)
    played.run()
    foretold = {str(one["settings"]): one["text"] for one in played.state["forecasts"]}
    assert foretold["{'num_workers': 2}"].startswith("predicted ")
    assert played.state["noTrials"] == NO_LOOP and played.state["before"] == []
    played.take({"ask": "trial", "settings": {"num_workers": 2}})
    assert played.state["message"] == NO_LOOP
    played.take({"ask": "forecast", "settings": {"num_workers": 2, "pin_memory": True}})
    assert any(len(one["settings"]) == 2 for one in played.state["forecasts"])
    played.take({"ask": "fix", "settings": {"num_workers": 2}})
    [fix] = played.state["fixes"].values()
    assert "num_workers=2" in "".join(text for _, text in fix["lines"]) and not fix["error"]


def stopped(played: Played) -> None:
    played.take({"ask": "stop"})


def interrupted(_: Played) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("end", [stopped, interrupted])
def test_it_can_be_stopped_and_then_shows_the_whole(end: Callable[[Played], None]) -> None:
    played = Played(starved(gpu=True, steps=1000), speed=20)
    played.while_waiting = end
    if end is interrupted:
        with pytest.raises(KeyboardInterrupt):
            played.run()
    else:
        played.run()
        assert played.state["message"].startswith("Stopped at 00:00 of 00:40")
    assert played.state["status"] == "idle" and played.state["header"]["clock"] == "00:40"
    assert sum(played.rows) == 1000 and len(played.told("header", "clock")) == 2
    assert "waits for data" in played.results[0]


def test_what_stands_in_proportion_is_said_until_the_end() -> None:
    played = Played(starved(steps=200, notes=("a note of the run",)))
    played.run()
    notes = played.told("footer", "notes")
    assert IN_PROPORTION in notes[0] and "a note of the run" in notes[-1] and IN_PROPORTION not in notes[-1]


def test_a_recording_without_a_step_is_shown_at_once() -> None:
    played = Played(starved(steps=0))
    played.run()
    assert played.now_s == 100.0 and played.state["status"] == "idle" and len(played.results) == 1


def test_a_view_that_fails_does_not_keep_the_cell() -> None:
    played = Played(starved(gpu=True, steps=1000), speed=0.01)
    played.while_waiting = lambda one: setattr(one, "sent", None) or one._screen.panel._fail(ValueError("gone"))  # type: ignore[func-returns-value,union-attr]
    played.run()
    assert played.now_s - 100.0 == pytest.approx(PERIOD_S) and "waits for data" in played.results[0]
    assert "The live view stopped (ValueError: gone)" in played.results[0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("/nowhere/run.npz",), "There is no recording at /nowhere/run.npz"),
        ((str(ROOT / "README.md"),), "is not a complete gpu_doctor recording"),
        ((3,), "replay() takes a recording"),
        ((SAVED, 0), "a number above 0 such as 20, not 0"),
        ((SAVED, -1), "not -1"),
        ((SAVED, float("nan")), "not nan"),
        ((SAVED, float("inf")), "not inf"),
        ((SAVED, "fast"), "not 'fast'"),
        ((SAVED, True), "not True"),
    ],
)
def test_what_cannot_be_played_is_one_sentence(given: tuple[Any, ...], said: str) -> None:
    with pytest.raises((ValueError, TypeError)) as error:
        gpu_doctor.replay(*given)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_outside_of_a_notebook_the_diagnosis_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(face, "_notebook", lambda: None)
    gpu_doctor.replay(SAVED)
    gpu_doctor.replay(Path(SAVED), speed=1)
    out = capsys.readouterr().out
    assert out.count("The loop waits for data 96 % of the time") == 2
