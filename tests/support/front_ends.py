"""Pages of front ends that cannot be run here, as far as their sources tell: what paints the ground behind a widget,
the variables and classes around it, the frames.

VS Code's widget bundle sets two of JupyterLab's variables as for a light theme in every theme, and its widgets stand on
white, which an open change would make transparent. Colab gives every cell a frame of its own and names the theme on
`html`; whether that frame is painted or lets the page behind it through is not known, so both are acted.
"""

from __future__ import annotations

from typing import Final

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
