"""The dashboard: what goes to the page, how it ends, and that a failing view fails alone. No page, no kernel."""

from __future__ import annotations

import gc
import re
import threading
import weakref
from contextvars import ContextVar

import bokeh

from gpu_doctor.notebook.live_view import Dashboard
from gpu_doctor.notebook.widget import DoctorView, bokeh_script, loader
from gpu_doctor.recording import Replay
from gpu_doctor.trials import knobs
from tests.support.dashboard_parts import Bench, Noted
from tests.support.dashboard_parts import bench as bench
from tests.support.panel_parts import shown
from tests.support.recordings import starved


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


def test_the_runs_own_thread_refreshes_only_what_the_panel_shows(bench: Bench) -> None:
    """As in Colab; a trial that a cell asks for does not end with a last message."""
    bench.dashboard.beat()
    assert bench.messages == []
    bench.dashboard._thread = threading.current_thread()
    bench.dashboard.beat()
    assert len(bench.messages) == 1
    bench.dashboard._thread = None


def test_the_refresher_sends_in_the_context_of_the_cell(bench: Bench) -> None:
    """ipykernel 7.0 finds there which cell a message belongs to, and raises without it."""
    cell: ContextVar[str] = ContextVar("cell")
    cell.set("of the cell")
    seen: list[str] = []
    bench.dashboard._refresh = lambda: seen.append(cell.get("of no cell"))  # type: ignore[method-assign]
    bench.dashboard.start()
    bench.dashboard.stop()
    assert seen == ["of the cell"]


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


def test_a_failing_view_says_so_once_and_stops(bench: Bench) -> None:
    bench.dashboard.follow(bench.replay)
    bench.failing = RuntimeError("no room")
    bench.dashboard.push()
    bench.dashboard.push()
    bench.dashboard.last()
    assert bench.dashboard.failure.startswith("The live view stopped (RuntimeError: no room)")
    assert bench.replay.notes == [bench.dashboard.failure]
    assert bench.messages == []


def test_a_panel_keeps_the_lines_of_a_run_that_is_over_and_not_its_recorder(bench: Bench) -> None:
    recorder = Noted(bench.recording)
    known = weakref.ref(recorder)
    bench.dashboard.follow(recorder)
    bench.dashboard.push()
    bench.dashboard.last()
    del recorder
    gc.collect()
    assert known() is None
    bench.page.clear()
    bench.dashboard._asked({"ask": "state"})
    assert len(bench.page["base:step"]) == 100


def test_requests_are_posted_and_bad_ones_answered(bench: Bench) -> None:
    asked = {"ask": "trial", "settings": {"num_workers": 2}, "steps": 30, "seconds": 20}
    bench.dashboard._asked(asked)
    assert bench.requests == [{**asked, "changes_training": False, "allow": ()}]
    bench.dashboard._asked({"ask": "trial", "settings": {"num_worker": 2}})
    assert bench.messages[-1]["state"]["message"] == "There is no knob named 'num_worker'."
    assert len(bench.requests) == 1


def test_a_quantity_nobody_expected_is_drawn_from_its_first_reading(bench: Bench) -> None:
    host = Dashboard(bench.look, bench.requests.append, knobs.KNOBS, gpus=())
    host.view.send = bench.send
    drawn = host.view.figure or loader({}).figure
    before = {line["key"] for plot in drawn["plots"] for line in plot["lines"]}
    assert "gpu_util_pct@0" not in before
    host.follow(bench.replay)
    host.push()
    after = {line["key"] for plot in host.view.figure["plots"] for line in plot["lines"]}
    assert {"gpu_util_pct@0", "hidden"} <= after
    host.view.close()


def test_the_panels_own_script_is_small_and_reaches_for_nothing_else() -> None:
    assert len(DoctorView._esm.encode()) <= 80_000, "it travels with every panel"
    own = re.sub(r"/\*.*?\*/", "", DoctorView._esm, flags=re.DOTALL)
    for forbidden in ("http:", "https:", "innerHTML", "insertAdjacentHTML", "document.write", "import("):
        assert forbidden not in own


def test_no_text_of_the_script_goes_over_several_lines_as_indents_are_not_sent() -> None:
    lines = DoctorView._esm.replace("/`([^`]+)`/", "").splitlines()
    assert [line for line in lines if line.count("`") % 2 or line.startswith(" ") or line.endswith("\\")] == []


def test_bokeh_travels_once_a_kernel_and_again_where_it_is_asked_for(bench: Bench) -> None:
    shared = loader({})
    its_id = shared.model_id
    one, other = (DoctorView(bench.requests.append, figure) for figure in (dict(shared.figure), {"doc": "another"}))
    assert one.bokeh == other.bokeh == {"version": bokeh.__version__, "loader": its_id}
    assert shared.source == bokeh_script() and "Bokeh" in bokeh_script()
    assert one.figure == {} and other.figure == {"doc": "another"}, "a figure of its own travels with its panel"
    one._handle_custom_msg({"ask": "bokeh"}, [])
    assert one.bokeh["source"] == bokeh_script() and one.bokeh["figure"] == shared.figure
    assert "source" not in other.bokeh
    later = DoctorView(lambda _: None, {})
    assert later.bokeh["source"] == bokeh_script(), "a page of this kernel did not find the loader: nor will others"
    later._handle_custom_msg({"ask": "found"}, [])
    spared = DoctorView(lambda _: None, {})
    assert "source" not in spared.bokeh, "the page had only been slow: BokehJS travels no more"
    for view in (later, spared):
        view.close()
    assert bench.requests == [], "nothing that a person asked for"
    shared.close()
    again = DoctorView(bench.requests.append, {"doc": "a third"})
    assert again.bokeh["loader"] == loader({}).model_id != its_id, "the loader was closed: there is another"
    assert loader({}).figure == {"doc": "a third"} and again.figure == {}
    for view in (one, other, again, loader({})):
        view.close()


def test_a_closed_panel_leaves_no_widget(bench: Bench) -> None:
    view = DoctorView(bench.requests.append, {})
    layout = view.layout
    view.close()
    assert view.comm is None and layout.comm is None


def test_a_closed_dashboard_is_let_go(bench: Bench) -> None:
    one = Dashboard(bench.look, bench.requests.append, knobs.KNOBS, gpus=())
    one.follow(bench.replay)
    one.push()
    one.close()
    one.push()
    assert not one.failure, "who still pushes does no harm"
    gone = weakref.ref(one)
    del one
    gc.collect()
    assert gone() is None
