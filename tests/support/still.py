"""The panel in a bare page, without a kernel: its script beside a model that only keeps what the page asks for.

Layout, folds, escaping and themes are looked at here in seconds; what needs a kernel is in test_scene and test_view.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any, Final

from playwright.sync_api import Page

from gpu_doctor.notebook.live_view import Dashboard
from gpu_doctor.notebook.widget import DoctorView, loader
from gpu_doctor.recording import Replay
from gpu_doctor.report.panel import PanelInput
from gpu_doctor.trials import knobs

_THEMES: Final = {
    "light": ":root { --jp-layout-color1: #fff; --jp-ui-font-color1: rgba(0,0,0,.87);"
    " --jp-ui-font-color2: rgba(0,0,0,.54); --jp-border-color2: #e0e0e0; } body { background: #fff; }",
    "dark": ":root { --jp-layout-color1: #111; --jp-ui-font-color1: #fff; --jp-ui-font-color2: rgba(255,255,255,.7);"
    " --jp-border-color2: #424242; } body { background: #111; }",
}
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
  widget_manager: { get_model: async () => ({ get: (name) => carried[name] }) },
};
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
    traits = traits_of(shown)
    carried = {"source": loader({}).source, "figure": loader({}).figure}
    given = {"SCRIPT": _SCRIPT, "TRAITS": json.dumps(traits), "CARRIED": json.dumps(carried)}
    source = re.sub("|".join(given), lambda name: given[name[0]].replace("</", "<\\/"), _MODEL)
    html = (
        f"<!doctype html><html><body data-jp-theme-light={json.dumps('true' if theme == 'light' else 'false')}>"
        f"<style>{_THEMES[theme]} body {{ margin: 10px; }}</style><style>{DoctorView._css}</style><main></main>"
    )
    page.route(_ADDRESS, lambda route: route.fulfill(body=html, content_type="text/html; charset=utf-8"))
    script = DoctorView._esm
    page.route(_SCRIPT, lambda route: route.fulfill(body=script, content_type="text/javascript; charset=utf-8"))
    page.goto(_ADDRESS)
    page.add_script_tag(content=source, type="module")
    page.locator("[data-gpu-doctor] .gd-text").wait_for(timeout=20_000)
    if plots:
        page.wait_for_function("document.querySelectorAll('.gd-cell > *').length === 3", timeout=20_000)
    return errors


def unfold(page: Page) -> None:
    """Unfolds what stands under `more`, if it is folded."""
    page.locator("[data-fold=more]").first.wait_for()
    if page.locator("[data-fold=more]").first.get_attribute("aria-expanded") == "false":
        page.locator("[data-fold=more]").first.click()


def resize(page: Page, width: int, height: int = 1200) -> None:
    """Gives the panel `width` pixels."""
    page.set_viewport_size({"width": width + 20, "height": height})
    page.wait_for_timeout(150)
