"""The panel in a bare page, without a kernel: its script beside a model that only keeps what the page asks for.

Layout, folds, escaping and themes are looked at here in seconds; what needs a kernel is in test_scene and test_view.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any, Final, Literal

from playwright.sync_api import Frame, Page

from gpu_doctor.notebook.live_view import Dashboard
from gpu_doctor.notebook.widget import DoctorView, loader
from gpu_doctor.recording import Replay
from gpu_doctor.report.panel import PanelInput
from gpu_doctor.trials import knobs
from tests.support.front_ends import PAGES

_ADDRESS: Final = "http://localhost/still"
"""Nobody listens there; as a secure page it may use the clipboard."""
_SCRIPT: Final = "http://localhost/panel.js"
_MODEL: Final = """
import panel from "SCRIPT";
const carried = CARRIED, traits = TRAITS, listeners = {};
window.listening = () => Object.values(listeners).reduce((sum, one) => sum + one.length, 0);
traits.rows.data = new DataView(Uint8Array.from(atob(traits.rows.data), (one) => one.charCodeAt(0)).buffer);
window.asked = [];
window.ran = 0;
const model = {
  get: (name) => traits[name],
  set: (name, value) => { traits[name] = value; (listeners[`change:${name}`] ?? []).forEach((one) => one()); },
  on: (name, call) => { (listeners[name] ??= []).push(call); },
  off: (name, call) => { listeners[name] = (listeners[name] ?? []).filter((one) => one !== call); },
  send: (message) => window.asked.push(message),
  widget_manager: MANAGER,
};
window.answer = () => model.set("bokeh", { ...traits.bokeh, ...carried });
window.tell = (state) => model.set("state", { ...traits.state, ...state });
window.forget = panel.initialize({ model });
window.listeningBefore = window.listening();
window.dispose = panel.render({ model, el: document.querySelector("main") });
"""


def traits_of(shown: PanelInput) -> dict[str, Any]:
    """What the widget of this panel would hold at the end of a run."""
    dashboard = Dashboard(lambda: shown, lambda request: None, knobs.KNOBS, gpus=(0,) if shown.setup.on_gpu else ())
    try:
        dashboard.view.send = lambda *_, **__: None
        for recording in shown.recordings[-1:]:
            dashboard.follow(Replay(recording))
        dashboard.last()
        assert not dashboard.failure, dashboard.failure
        rows = dashboard.view.rows
        data = base64.b64encode(bytes(rows["data"])).decode()
        return {
            "figure": dashboard.view.figure,
            "state": dashboard.view.state,
            "rows": {"seq": rows["seq"], "head": rows["head"], "data": data},
            "bokeh": dashboard.view.bokeh,
        }
    finally:
        dashboard.view.close()


def show(page: Page, shown: PanelInput, theme: str = "light", width: int = 1000, plots: bool = True) -> list[str]:
    """Draws the panel in `page`, `width` pixels wide; the errors that the page logs are added to what is returned.

    Args:
        plots: wait for them.
    """
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    resize(page, width)
    serve(page, theme)
    page.goto(_ADDRESS)
    start(page, shown)
    if plots:
        page.wait_for_function("document.querySelectorAll('.gd-cell > .bk-Figure').length === 3", timeout=20_000)
    return errors


def unfold(page: Page) -> None:
    """Unfolds what stands under `more`, if it is folded."""
    page.locator("[data-fold=more]").first.wait_for()
    if page.locator("[data-fold=more]").first.get_attribute("aria-expanded") == "false":
        page.locator("[data-fold=more]").first.click()


def serve(page: Page, theme: str, address: str = _ADDRESS, more: str = "", policy: str = "") -> None:
    """Has an address answer with an empty page of a front end, and the panel's script lie beside it.

    Args:
        theme: of `front_ends.PAGES`.
        more: HTML that stands below the panel.
        policy: the page's Content-Security-Policy.
    """
    before = PAGES[theme]
    main = "" if "<main>" in before else "<main></main>"
    html = f"<!doctype html>{before}<style>body {{ margin: 10px; }}</style><style>{DoctorView._css}</style>{main}{more}"
    headers = {"Content-Type": "text/html; charset=utf-8"} | ({"Content-Security-Policy": policy} if policy else {})
    page.route(address, lambda route: route.fulfill(body=html, headers=headers))
    script = DoctorView._esm
    page.route(_SCRIPT, lambda route: route.fulfill(body=script, content_type="text/javascript; charset=utf-8"))


Manager = Literal["finds", "refuses", "none"]
_MANAGERS: Final[dict[Manager, str]] = {
    "finds": "{ get_model: async () => ({ get: (name) => carried[name] }) }",
    "refuses": "{ get_model: async () => { throw new Error('widget model not found'); } }",
    "none": "undefined",
}


def start(page: Page | Frame, shown: PanelInput, manager: Manager = "finds", brings: bool = False) -> None:
    """Draws the panel in a page that is there.

    Args:
        manager: what the page's widget manager does about the loader.
        brings: the panel brings along what plots need.
    """
    carried = {"source": loader({}).source, "figure": loader({}).figure}
    traits = traits_of(shown)
    if brings:
        traits["bokeh"] |= carried
    given = {"SCRIPT": _SCRIPT, "TRAITS": json.dumps(traits), "CARRIED": json.dumps(carried)}
    given["MANAGER"] = _MANAGERS[manager]
    source = re.sub("|".join(given), lambda name: given[name[0]].replace("</", "<\\/"), _MODEL)
    if manager == "none":
        source = source.replace("window.forget = panel.initialize", "void")
    page.add_script_tag(content=source, type="module")
    page.locator("[data-gpu-doctor] .gd-text").wait_for(timeout=20_000)


def resize(page: Page, width: int, height: int = 1200) -> None:
    """Gives the panel `width` pixels."""
    page.set_viewport_size({"width": width + 20, "height": height})
    page.wait_for_timeout(150)


CUT = """(() => {
  const root = document.querySelector('[data-gpu-doctor]').getBoundingClientRect();
  const cells = [...document.querySelectorAll('.gd-runs td, .gd-runs th, .gd-rung > *')];
  return { page: document.documentElement.scrollWidth - innerWidth,
    table: Math.max(...[...document.querySelectorAll('.gd-scroll')].map((one) => one.scrollWidth - one.clientWidth)),
    spill: Math.max(...cells.map((one) => one.getBoundingClientRect().right)) - root.right,
    broken: cells.filter((one) => one.scrollWidth > one.clientWidth + 1
      && getComputedStyle(one).display !== 'inline').length };
})()"""


def asked(page: Page) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = page.evaluate("window.asked")
    return found
