"""What the panel asks for waits for the kernel's loop and can be withdrawn; an interrupt keeps what was measured."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpu_doctor.notebook import actions
from gpu_doctor.notebook.actions import Actions
from gpu_doctor.report.panel import PanelInput, state
from gpu_doctor.trials import knobs
from tests.support.panel_parts import shown
from tests.support.panel_visits import Loop, Visited
from tests.support.panel_visits import loop as loop
from tests.support.recordings import starved


def test_an_interrupted_treatment_shows_the_plan_so_far(loop: Loop) -> None:
    visit: Any = Visited()

    def treat(**given: Any) -> None:
        visit.case.plans.append("what was verified")
        raise KeyboardInterrupt

    visit.case.treat = treat
    Actions(visit).take({"ask": "treat"})
    loop.is_free()
    assert visit.case.plans[-1] == "what was verified"
    assert visit.message.startswith("Interrupted") and "restored" in visit.message
    assert (visit.status, visit.seen[-1]) == ("idle", "settled")


@pytest.mark.parametrize("ticked", [True, False])
def test_a_treatment_knows_whether_what_changes_the_training_was_ticked(loop: Loop, ticked: bool) -> None:
    visit: Any = Visited()
    asked: list[dict[str, Any]] = []
    visit.case.treat = lambda **given: asked.append(given)
    Actions(visit).take({"ask": "treat", "steps": 30, "seconds": 7.5, "changes_training": ticked})
    loop.is_free()
    assert asked == [{"steps": 30, "seconds": 7.5, "changes_training": ticked, "allow": ()}]


NO_BUDGET = {"steps": None, "seconds": None}


@pytest.mark.parametrize(
    ("ask", "status", "settings", "budget"),
    [
        ("trial", "trial", ({"amp": "bf16"},), NO_BUDGET),
        ("treat", "treating", (), {**NO_BUDGET, "changes_training": False}),
        ("sweep", "sweeping", ({"num_workers": [0, 2]},), NO_BUDGET),
        ("largest", "searching", (), {}),
        ("ideal", "trial", (knobs.IDEAL_LOADER,), NO_BUDGET),
        ("look", "looking", (), {}),
    ],
)
def test_each_button_waits_for_the_loop_and_passes_on_what_is_allowed(
    loop: Loop, ask: str, status: str, settings: tuple[Any, ...], budget: dict[str, Any]
) -> None:
    """Without a budget it leaves that to the case; what a side showed to reach out is looked at afterwards."""
    visit: Any = Visited()
    given: list[Any] = []
    looks: list[str] = []

    def take(*settings: Any, allow: Any, **budget: Any) -> None:
        given.append((visit.status, settings, allow, budget))
        visit.case.reached["network"] = "requests.get in line 3"

    visit.case.trial = visit.case.treat = visit.case.sweep = visit.case.largest_batch = visit.case.look = take
    visit.case.sweeps = []
    visit.details = SimpleNamespace(preview=lambda: looks.append(ask))
    request = {"ask": ask, "settings": {"amp": "bf16"}, "grid": {"num_workers": [0, 2]}, "allow": ("processes",)}
    Actions(visit).take(request)
    assert given == [] and visit.status == "waiting"
    loop.is_free()
    assert given == [(status, settings, ("processes",), budget)] and looks == [ask]
    assert (visit.status, visit.seen[-1]) == ("idle", "settled")


def test_a_request_waits_in_sight_until_the_loop_is_free(loop: Loop) -> None:
    tried: list[Any] = []
    visit: Any = Visited(lambda settings, **budget: tried.append(settings))
    asked = Actions(visit)
    asked.take({"ask": "trial", "settings": {"num_workers": 2}})
    assert (visit.status, visit.seen, tried) == ("waiting", ["waiting"], [])
    asked.take({"ask": "treat"})
    assert "press Stop" in visit.message and len(loop.waiting) == 1
    loop.is_free()
    assert tried == [{"num_workers": 2}]
    assert (visit.status, visit.seen[-1]) == ("idle", "settled")


def test_stop_withdraws_what_waits_and_another_may_follow(loop: Loop) -> None:
    tried: list[Any] = []
    visit: Any = Visited(lambda settings, **budget: tried.append(settings))
    asked = Actions(visit)
    asked.take({"ask": "trial", "settings": {"num_workers": 2}})
    asked.take({"ask": "stop"})
    assert (visit.status, visit.message) == ("idle", "The request was cancelled before it began.")
    assert "stopped" not in visit.seen, "nothing runs that could be stopped"
    asked.take({"ask": "trial", "settings": {"num_workers": 4}})
    loop.is_free()
    assert tried == [{"num_workers": 4}]


def test_stop_stops_what_has_begun(loop: Loop) -> None:
    visit: Any = Visited(lambda settings, **budget: asked.take({"ask": "stop"}))
    asked = Actions(visit)
    asked.take({"ask": "trial"})
    loop.is_free()
    assert visit.seen == ["waiting", "stopped", "settled"]
    asked.take({"ask": "stop"})
    assert visit.seen[-1] == "stopped"


def test_without_a_kernels_loop_nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "get_ipython", lambda: None)
    visit: Any = Visited()
    asked = Actions(visit)
    asked.take({"ask": "trial"})
    assert visit.status == "idle" and "no event loop" in visit.message
    asked.take({"ask": "stop"})
    assert visit.seen[-1] == "stopped"


def test_what_waits_is_busy_for_the_page_and_keeps_its_verdict() -> None:
    found = state(shown(starved(), status="waiting", stop_live=False), knobs.KNOBS)
    assert found["busy"] and found["header"]["status"] == "waiting for the kernel"
    assert found["header"]["stop"] == "", "an interrupt would meet the cell that runs"
    assert found["verdict"]["text"].startswith("The loop waits for data 75 % of the time")
    few = state(shown(starved(steps=3), status="waiting"), knobs.KNOBS)
    assert few["verdict"]["text"].startswith("Only 3 steps were measured")
    assert state(PanelInput(status="waiting"), knobs.KNOBS)["verdict"]["text"] == "Nothing was recorded yet."
