"""Pages of front ends that cannot be run here, as far as their sources tell: what paints the ground behind a widget,
the variables and classes around it, the frames. And the contrast of every text in a page, over what lies behind it.

VS Code's widget bundle sets two of JupyterLab's variables as for a light theme in every theme, and its widgets stand on
white, which an open change would make transparent. Colab gives every cell a frame of its own and names the theme on
`html`; whether that frame is painted or lets the page behind it through is not known, so both are acted.
"""

from __future__ import annotations

from typing import Any, Final

from playwright.sync_api import Frame, Page

_LAB: Final = (
    "<body data-jp-theme-light={light}><style>:root {{ {variables} }} body {{ background: {ground}; }}</style>"
)
_LIGHT: Final = (
    "--jp-layout-color1: #fff; --jp-ui-font-color1: rgba(0,0,0,.87); --jp-ui-font-color2: rgba(0,0,0,.54);"
    " --jp-border-color2: #e0e0e0;"
)
_DARK: Final = (
    "--jp-layout-color1: #111; --jp-ui-font-color1: #fff; --jp-ui-font-color2: rgba(255,255,255,.7);"
    " --jp-border-color2: #424242;"
)
_VSCODE: Final = (
    "<body class='vscode-{name}'><style>"
    ":root {{ --jp-layout-color1: white; --jp-ui-font-color1: rgba(0,0,0,.8); --vscode-foreground: {ink}; }}"
    " body {{ background: {ground}; color: var(--vscode-foreground); }}"
    " .cell-output-ipywidget-background {{ background: {widgets} !important; }}</style>"
    "<div class='cell-output-ipywidget-background'><main></main></div>"
)
_COLAB: Final = (
    "<html theme={name}><style>html[theme=dark] {{ color: #e3e3e3; }} html[theme=dark] body {{ {dark} }}"
    " html[theme=light] body {{ {light} }}</style><body>"
)

PAGES: Final = {
    "light": _LAB.format(light="true", variables=_LIGHT, ground="#fff"),
    "dark": _LAB.format(light="false", variables=_DARK, ground="#111"),
    "high-contrast": _LAB.format(
        light="false", variables=_DARK.replace("#111", "#000").replace(",.7", ",1"), ground="#000"
    ),
    "vscode-light": _VSCODE.format(name="light", ink="#3b3b3b", ground="#fff", widgets="white"),
    "vscode-dark": _VSCODE.format(name="dark", ink="#ccc", ground="#1f1f1f", widgets="white"),
    "vscode-dark-transparent": _VSCODE.format(name="dark", ink="#ccc", ground="#1f1f1f", widgets="transparent"),
    "vscode-high-contrast": _VSCODE.format(name="high-contrast", ink="#fff", ground="#000", widgets="transparent"),
    "colab-light": _COLAB.format(name="light", dark="background: #383838;", light="background: #fff;"),
    "colab-dark": _COLAB.format(name="dark", dark="background: #383838;", light="background: #fff;"),
    "colab-dark-seen-through": _COLAB.format(name="dark", dark="", light=""),
}
"""What stands before the panel in each page; where no `main` is among it, the panel stands after it."""
DARK: Final = {name for name in PAGES if "light" not in name} - {"vscode-dark"}
"""Where the ground behind the panel is dark."""

CONTRASTS: Final = """(selector) => {
  const read = (text) => {
    const n = (text.match(/-?[\\d.]+(e-?\\d+)?/g) ?? []).map(Number);
    const k = text.startsWith("color(") ? 255 : 1;
    return [n[0] * k, n[1] * k, n[2] * k, n[3] ?? 1];
  };
  const over = (top, below) => [...[0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])), 1];
  const light = (c) => {
    const line = (v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
    const [r, g, b] = c.slice(0, 3).map((v) => line(v / 255));
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const behind = (one) => {
    if (!one) return [255, 255, 255, 1];
    const here = read(getComputedStyle(one).backgroundColor);
    return here[3] === 1 ? here : over(here, behind(one.parentElement));
  };
  const shade = (one) => one ? Number(getComputedStyle(one).opacity) * shade(one.parentElement) : 1;
  const found = [];
  for (const root of document.querySelectorAll(selector)) {
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    const texts = [...root.querySelectorAll("select, input[type=number]")].map((one) => [one, one.value]);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      texts.push([node.parentElement, node.data.trim()]);
    }
    for (const [one, text] of texts) {
      if (!text || !one.checkVisibility() || one.closest("svg, style, script, option, .bk-Figure")) continue;
      const ground = behind(one);
      const ink = read(getComputedStyle(one).color);
      const seen = over([...ink.slice(0, 3), ink[3] * shade(one)], ground);
      const [a, b] = [light(seen), light(ground)].sort((x, y) => y - x);
      found.push([(a + .05) / (b + .05), text.slice(0, 60), one.className]);
    }
  }
  return found.sort((x, y) => x[0] - y[0]);
}"""


def contrasts(page: Page | Frame, selector: str = "[data-gpu-doctor]") -> list[tuple[float, str, str]]:
    """Every text that is seen, lowest contrast first: the contrast, the text, and its element's class."""
    found: list[Any] = page.evaluate(CONTRASTS, selector)
    return [(contrast, text, name) for contrast, text, name in found]
