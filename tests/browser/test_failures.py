"""What goes wrong between kernel and page, in JupyterLab and in a bare page: one sentence, the static result, nothing
that looks as if a run went on. And a page that is loaded again in the middle of a run and of a trial."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from gpu_doctor import formatting, report
from gpu_doctor.diagnosis import diagnose
from gpu_doctor.report.sections import Reported
from tests.support.classic import PREPARED, WATCHED, static
from tests.support.lab import Lab, new_page
from tests.support.live_page import NOT_SHOWN, PANEL, rows
from tests.support.open_notebook import Notebook, wait_until
from tests.support.panel_parts import shown
from tests.support.recordings import starved
from tests.support.repository import ARTIFACTS
from tests.support.still import resize, serve, start

pytestmark = pytest.mark.timeout(300)

GONE = "kernel that ran this cell is gone"
IN_AN_OUTPUT = """(() => { const area = document.createElement("div"); area.className = "output";
  area.append(document.querySelector("main"), document.querySelector(".gpu-doctor-static")); document.body.append(area);
})()"""


def opened(lab: Lab, page: Page, name: str, first: str = "", watched: str = WATCHED) -> Notebook:
    """A notebook whose first cell has run."""
    notebook = lab.open(page, lab.write(name, [PREPARED + first, watched]))
    notebook.run_cell(0, wait_s=120)
    return notebook


def runs(notebook: Notebook) -> None:
    """The watched cell was started, and shows its steps."""
    notebook.run_cell(1)
    wait_until(lambda: rows(notebook.page) > 10, 60, "No row came to the page while the cell ran")


def pid_of(notebook: Notebook) -> int:
    return int(notebook.kernel_value("__import__('os').getpid()"))


def ended(notebook: Notebook) -> None:
    notebook.interrupt()
    notebook.wait_idle(60)


def trying(notebook: Notebook) -> None:
    """A trial is under way."""
    page = notebook.page
    page.locator("[data-knob=num_workers]").select_option(label="2")
    page.locator("[data-gpu-doctor] [data-ask=trial]").click()
    wait_until(lambda: page.evaluate(f"{PANEL}.state().status") == "trial", 30, "No trial began")


def told(page: Page) -> str:
    """The sentences at the panel's top, where nothing looks like a run that goes on."""
    assert page.locator("[data-gpu-doctor] .gd-dot.gd-broken").count() == 1
    assert page.locator("[data-gpu-doctor] [data-ask=stop][aria-disabled=true]").count() == 1
    assert page.locator("[data-gpu-doctor] .gd-header [role=status]").first.inner_text() == "no kernel"
    return " ".join(page.locator("[data-gpu-doctor] .gd-hint").all_inner_texts())


@pytest.mark.parametrize("how", ["killed", "restarted"])
def test_a_kernel_that_goes_in_the_middle_of_a_run(lab: Lab, page: Page, how: str) -> None:
    notebook = opened(lab, page, f"failures_{how}.ipynb")
    pid = pid_of(notebook)
    runs(notebook)
    if how == "killed":
        os.kill(pid, signal.SIGKILL)
    else:
        page.evaluate("void window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    wait_until(lambda: page.evaluate(f"{PANEL}.live.lost"), 25, "The panel did not notice")
    assert GONE in told(page)
    ok = page.get_by_role("button", name="Ok")
    if how == "killed":
        ok.wait_for(timeout=20_000)
        ok.click()
    notebook.screenshot(f"kernel-{how}", page.locator("[data-gpu-doctor]"))


def test_a_kernel_that_dies_in_a_trial_leaves_the_static_result_in_sight(lab: Lab, page: Page) -> None:
    notebook = opened(lab, page, "failures_trial.ipynb")
    pid = pid_of(notebook)
    runs(notebook)
    ended(notebook)
    wait_until(lambda: static(page).count(), 20, "There is no static result")
    assert not static(page).is_visible()
    trying(notebook)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: page.evaluate(f"{PANEL}.live.lost"), 25, "The panel did not notice")
    assert GONE in told(page)
    assert static(page).is_visible()


def test_a_page_without_widgets(lab: Lab, page: Page) -> None:
    page.route("**/lab/extensions/@jupyter-widgets/**", lambda route: route.abort())
    notebook = opened(
        lab, page, "failures_no_widgets.ipynb", watched=WATCHED.replace("%%gpudoctor", "%%gpudoctor --steps 100")
    )
    notebook.run_cell(1, wait_s=90)
    wait_until(lambda: static(page).count() and static(page).is_visible(), 20, "No static result")
    assert notebook.output(1).inner_text().count("gpu_doctor: no live panel here") == 1
    notebook.screenshot("no-widgets", notebook.output(1))


def test_a_page_whose_policy_blocks_the_panels_script(browser: Browser, tmp_path: Path) -> None:
    policy = "script-src 'self' 'unsafe-inline' 'unsafe-eval'; worker-src 'self' blob:"
    with Lab(tmp_path / "home", policy=policy) as strict:
        context, page = new_page(browser)
        notebook = opened(
            strict, page, "strict.ipynb", watched=WATCHED.replace("%%gpudoctor", "%%gpudoctor --steps 100")
        )
        notebook.run_cell(1, wait_s=90)
        wait_until(lambda: static(page).count() and static(page).is_visible(), 20, "No static result")
        assert page.locator("[data-gpu-doctor]").count() == 0
        box = page.locator(".jupyter-widgets-error-widget")
        assert NOT_SHOWN in box.evaluate("(one) => getComputedStyle(one, '::after').content")
        notebook.screenshot("blocked-script", notebook.output(1))
        strict.end_kernels()
        context.close()


def test_a_page_that_evaluates_no_text(blank: Page) -> None:
    """Its policy lets the panel's script run, but not BokehJS, which comes as text."""
    resize(blank, 1000)
    static_result = report.html(Reported(diagnose(starved()), (starved(),), (), title="run"))
    serve(blank, "light", more=static_result, policy="script-src 'self' 'unsafe-inline'")
    blank.goto("http://localhost/still")
    blank.evaluate(IN_AN_OUTPUT)
    start(blank, shown(starved()))
    blank.get_by_text("The plots could not be drawn (").wait_for(timeout=10_000)
    assert "unsafe-eval" in blank.locator(".gd-key").inner_text()
    assert static(blank).is_visible()
    blank.screenshot(path=ARTIFACTS / "no-eval.png", full_page=True)


def test_half_a_minute_without_news(blank: Page) -> None:
    """As in nbclassic, whose kernel was killed: a message can still be sent, and nothing comes."""
    blank.clock.install()
    blank.set_viewport_size({"width": 1020, "height": 1200})
    serve(blank, "light", more=report.html(Reported(diagnose(starved()), (starved(),), (), title="run")))
    blank.goto("http://localhost/still")
    blank.evaluate(IN_AN_OUTPUT)
    start(blank, shown(starved(), status="recording", recordings=()))
    blank.clock.run_for(1000)
    assert not static(blank).is_visible()
    blank.clock.run_for(30_000)
    hint = blank.locator(".gd-header .gd-hint").last
    assert hint.inner_text().startswith("No news from the kernel")
    assert blank.locator(".gd-dot.gd-broken").count() == 1 and "recording" not in blank.locator(".gd-live").inner_text()
    assert static(blank).is_visible()
    blank.screenshot(path=ARTIFACTS / "no-news.png", full_page=True)
    blank.evaluate("window.tell({})")
    assert blank.locator(".gd-dot.gd-recording").count() == 1 and not static(blank).is_visible()


# ---- loaded again ---------------------------------------------------------------------------------------------------


def whole(page: Page) -> None:
    """The panel stands there with all that the kernel has."""
    wait_until(lambda: page.evaluate(f"{PANEL}?.state()?.status ?? null") == "idle", 60, "The panel did not come back")
    wait_until(lambda: page.locator(".gd-cell > .bk-Figure").count() == 3, 30, "The plots did not come back")
    assert page.locator("[data-gpu-doctor] .gd-hint").count() == 0
    assert page.locator("[data-gpu-doctor] progress").count() == 0


def test_a_page_that_is_loaded_again_in_the_middle_of_a_run(lab: Lab, page: Page) -> None:
    notebook = opened(lab, page, "failures_reload_run.ipynb")
    runs(notebook)
    notebook.save()
    notebook.reload(idle=False)
    page.wait_for_timeout(1000)
    assert page.locator("[data-gpu-doctor]").count() == 0, "JupyterLab says that it loads: nothing old is shown"
    ended(notebook)
    whole(page)
    steps = int(notebook.kernel_value("len(__import__('gpu_doctor').last_case().recordings[-1].steps)"))
    assert rows(page) == steps
    assert page.locator(".gd-header [role=status]").first.inner_text() == "interrupted"


def test_a_page_that_is_loaded_again_in_the_middle_of_a_trial(lab: Lab, page: Page) -> None:
    notebook = opened(lab, page, "failures_reload_trial.ipynb")
    runs(notebook)
    ended(notebook)
    trying(notebook)
    notebook.save()
    notebook.reload(idle=False)
    whole(page)
    assert page.locator(".gd-runs tbody tr:not(.gd-detail)").count() == 2
    figures = [f"__import__('gpu_doctor').last_case().effects[-1].{name}" for name in ("speedup", "low", "high")]
    speedup, low, high = (float(notebook.kernel_value(one)) for one in figures)
    told = formatting.figure(speedup, low, high)  # "at least 1.71x" where the interval is wide
    assert told in page.locator(".gd-runs").inner_text().replace("\xa0", " ")
    notebook.screenshot("reloaded-in-a-trial", page.locator("[data-gpu-doctor]"))
    page.locator("[data-knob=num_workers]").select_option(label="1")
    page.locator("[data-gpu-doctor] [data-ask=trial]").click()
    wait_until(lambda: page.evaluate(f"{PANEL}.state().table.rows.length") == 3, 90, "Clicks are not heard any more")
    whole(page)
