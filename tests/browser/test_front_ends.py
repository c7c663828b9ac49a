"""The panel in pages that act VS Code and Colab: its colours follow what is behind it, and every text is legible."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Frame, Page

from gpu_doctor import report
from gpu_doctor.diagnosis import diagnose
from gpu_doctor.report.sections import Reported
from tests.support.front_ends import DARK, PAGES
from tests.support.lab import new_page
from tests.support.panel_parts import shown
from tests.support.recordings import starved
from tests.support.repository import ARTIFACTS
from tests.support.seen_by_all import pale
from tests.support.still import resize, serve, show, start
from tests.support.trial_parts import treated

DARK_NOW = "document.querySelector('[data-gpu-doctor]').classList.contains('gd-dark')"


@pytest.fixture
def blank(browser: Browser) -> Iterator[Page]:
    context, page = new_page(browser)
    page.emulate_media(reduced_motion="reduce")  # colours are measured at rest
    yield page
    context.close()


@pytest.mark.parametrize("name", PAGES)
def test_every_text_is_legible_on_what_is_behind_it(blank: Page, name: str) -> None:
    errors = show(blank, treated(), name)
    assert blank.evaluate(DARK_NOW) == (name in DARK)
    for number in range(2):
        blank.locator("[data-fold=row]").nth(number).click()
    for fold in ("more", "why"):
        blank.locator(f"[data-fold={fold}]").first.click()
    assert pale(blank) == []
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    blank.screenshot(path=ARTIFACTS / f"front-end-{name}.png", full_page=True)
    blank.evaluate("window.tell({ status: 'recording', busy: true })")
    assert pale(blank) == [], "while a run goes on"
    assert errors == []


SWITCHES = {
    "light": "document.querySelector('style').textContent += ' body { background: #111; }'; "
    "document.body.dataset.jpThemeLight = 'false'",
    "colab-light": "document.documentElement.setAttribute('theme', 'dark')",
    "vscode-light": "document.querySelector('.cell-output-ipywidget-background').className = ''; "
    "document.body.style.background = '#1f1f1f'; document.body.className = 'vscode-dark'",
}


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_of_the_theme_is_followed(blank: Page, name: str) -> None:
    show(blank, treated(), name)
    assert not blank.evaluate(DARK_NOW)
    blank.evaluate(SWITCHES[name])
    blank.wait_for_function(DARK_NOW, timeout=3000)
    assert pale(blank) == []
    axis = "(() => { const { plots } = document.querySelector('[data-gpu-doctor]').gpuDoctor; return plots.dark; })()"
    assert blank.evaluate(axis), "the plots too"


def test_a_name_alone_changes_nothing(blank: Page) -> None:
    show(blank, treated(), "vscode-light")
    blank.evaluate("document.body.className = 'vscode-dark'")
    blank.wait_for_timeout(700)
    assert not blank.evaluate(DARK_NOW), "what is behind the panel is white still"


TOLD = "window.asked.length > 0 && document.querySelector('.gd-key').innerText !== ''"
"""The kernel was asked, and a sentence stands where the plots will."""
PLOTTED = "document.querySelectorAll('.gd-cell > .bk-Figure').length === 3"


def cells_of_colab(page: Page, count: int) -> list[Frame]:
    """As many cells, each of which shows its output in a frame of its own."""
    resize(page, 1000)
    for number in range(count):
        serve(page, "colab-dark", f"http://localhost/frame{number}")
    frames = "".join(
        f"<iframe src=http://localhost/frame{number} width=980 height=700></iframe>" for number in range(count)
    )
    page.route("http://localhost/colab", lambda route: route.fulfill(body=frames, content_type="text/html"))
    page.goto("http://localhost/colab")
    return page.frames[1:]


def test_every_cell_of_colab_is_a_frame_with_a_bokehjs_of_its_own(blank: Page) -> None:
    for frame in cells_of_colab(blank, 2):
        start(frame, treated())
        frame.wait_for_function(PLOTTED, timeout=20_000)
        assert frame.evaluate("Bokeh.documents.length") == 1
        assert pale(frame) == []


def test_cells_of_colab_whose_frames_do_not_find_the_loader_plot_all_the_same(blank: Page) -> None:
    """Each frame has a manager of its own, that may know the models of its own cell alone."""
    first, second, later = cells_of_colab(blank, 3)
    for frame in (first, second):
        start(frame, treated(), manager="refuses")
        frame.wait_for_function(TOLD, timeout=10_000)
        assert frame.evaluate("window.asked") == [{"ask": "bokeh"}], "once"
        frame.evaluate("window.answer()")
        frame.wait_for_function(PLOTTED, timeout=20_000)
        assert frame.evaluate("Bokeh.documents.length") == 1
    start(later, treated(), manager="refuses", brings=True)
    later.wait_for_function(PLOTTED, timeout=20_000)
    assert later.evaluate("window.asked") == [], "the kernel has learned, and sent it with the panel"


def test_a_page_that_missed_the_loader_once_says_when_it_has_it(blank: Page) -> None:
    """Later panels of its kernel then need not bring BokehJS."""
    resize(blank, 1000)
    serve(blank, "light")
    blank.goto("http://localhost/still")
    start(blank, shown(starved()), brings=True)
    blank.wait_for_function(PLOTTED, timeout=20_000)
    assert blank.evaluate("window.asked") == [{"ask": "found"}]


@pytest.mark.parametrize("name", ["vscode-dark", "colab-light"])
def test_where_clicks_wait_for_the_end_of_the_cell_the_panel_says_so(blank: Page, name: str) -> None:
    """The kernel of such a front end says how to interrupt; a click on Stop that it does not hear is told too."""
    running = shown(starved(), status="recording", recordings=(), stop_live=False)
    show(blank, running, name, plots=False)
    hint = blank.locator(".gd-header .gd-hint")
    assert hint.inner_text().startswith("To stop, interrupt the kernel")
    assert pale(blank) == []
    blank.locator("[data-ask=stop]").click()
    assert blank.evaluate("window.asked.at(-1).ask") == "stop", "it waits in the front end"
    blank.evaluate(
        "window.tell({ status: 'idle', busy: false, header: { ...document.querySelector('[data-gpu-doctor]')"
        ".gpuDoctor.state().header, stop: '' } })"
    )
    hint.wait_for(state="detached", timeout=3000)


@pytest.mark.parametrize("name", ["vscode-dark", "vscode-high-contrast", "colab-dark", "colab-light"])
def test_a_notebook_that_is_reopened_shows_the_static_result_legibly(blank: Page, name: str) -> None:
    """No script runs then: the result is all there is."""
    resize(blank, 1000)
    static = report.html(Reported(diagnose(starved()), (starved(),), (), title="reopened"))
    serve(blank, name, more=static)
    blank.goto("http://localhost/still")
    assert pale(blank, ".gpu-doctor-static") == []
    blank.screenshot(path=ARTIFACTS / f"reopened-{name}.png", full_page=True)


def test_an_old_anywidget_is_asked_for_what_plots_need(blank: Page) -> None:
    """No widget manager to ask, `initialize` is not called: all is drawn but the plots, which come with the answer."""
    resize(blank, 1000)
    serve(blank, "light")
    blank.goto("http://localhost/still")
    start(blank, shown(starved()), manager="none")
    blank.wait_for_function(TOLD, timeout=5000)
    assert blank.evaluate("window.asked") == [{"ask": "bokeh"}]
