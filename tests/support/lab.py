"""A real JupyterLab server of our own, and the Chromium that looks at it.

`Lab` is the server: its own port, token, folders and settings, nothing shared with the machine's Jupyter. `Lab.open`
gives a `Notebook` (see open_notebook.py), which drives one notebook in a page the way a person does.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import nbformat
from playwright.sync_api import Browser, BrowserContext, Page, Playwright

from tests.support.jupyter_home import jupyter_environment
from tests.support.open_notebook import Notebook, wait_until

THEMES: Final = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}

_CHROMIUM_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_CHROMIUM_ARGS: Final = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage")


def chromium_path() -> str | None:
    """The machine's Chromium: `$CHROMIUM` if set, else the first one on the PATH, else None (playwright's own)."""
    named = os.environ.get("CHROMIUM")
    if named:
        return named
    return next((found for name in _CHROMIUM_NAMES if (found := shutil.which(name))), None)


def launch_chromium(playwright: Playwright) -> Browser:
    """A headless Chromium that asks nothing of the machine: no sandbox, no GPU, no calls home."""
    return playwright.chromium.launch(executable_path=chromium_path(), headless=True, args=list(_CHROMIUM_ARGS))


def write_notebook(path: Path, cells: Iterable[str], kernel: str = "python3") -> Path:
    """Writes a notebook of code cells (a cell whose text begins with `#md ` becomes markdown) and returns its path."""
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell(text[4:]) if text.startswith("#md ") else nbformat.v4.new_code_cell(text)
            for text in cells
        ],
        metadata={"kernelspec": {"name": kernel, "display_name": kernel, "language": "python"}},
    )
    nbformat.write(notebook, path)
    return path


class Lab:
    """A JupyterLab server in a folder of its own; a context manager that ends the server and its kernels."""

    def __init__(self, home: Path, start_timeout_s: float = 60.0, policy: str = "") -> None:
        """Prepares a server whose files, settings, workspaces and logs all live under `home` (an empty folder).

        Args:
            policy: the Content-Security-Policy of its pages; empty = Jupyter's own.
        """
        self.root = home / "notebooks"
        """The folder that the file browser shows: put notebooks here."""
        self.token = secrets.token_hex(16)
        self.log = home / "server.log"
        self._home = home
        self._start_timeout_s = start_timeout_s
        self._policy = policy
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self.root.mkdir(parents=True)
        self._write_settings("notification", {"fetchNews": "false", "checkForUpdates": False})
        self.set_theme("light")

    @property
    def url(self) -> str:
        """Address of the server, without a slash at the end."""
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Lab:
        self._port = _free_port()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command(self._port),
                env=jupyter_environment(self._home),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            wait_until(self._answers, self._start_timeout_s, "JupyterLab did not start")
        except TimeoutError as error:
            self.__exit__()
            raise TimeoutError(f"{error} Its log:\n{self.log.read_text()[-4000:]}") from None
        return self

    def __exit__(self, *_: object) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            self.api("POST", "/api/shutdown")
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)

    def _command(self, port: int) -> list[str]:
        """What starts the server."""
        command = [sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root"]
        command += [f"--ServerApp.root_dir={self.root}", f"--ServerApp.port={port}"]
        command += ["--ServerApp.ip=127.0.0.1", "--ServerApp.port_retries=0", f"--IdentityProvider.token={self.token}"]
        command += ["--LabApp.expose_app_in_browser=True", "--LabApp.extension_manager=readonly"]
        command += ["--JupyterNotebookApp.expose_app_in_browser=True"]
        return command + self._policed("ServerApp")

    def _policed(self, app: str) -> list[str]:
        headers = {"headers": {"Content-Security-Policy": self._policy}}
        return [f"--{app}.tornado_settings={headers}"] if self._policy else []

    def set_theme(self, theme: str) -> None:
        """Theme (`light` or `dark`) of pages loaded from now on."""
        self._write_settings("themes", {"theme": THEMES[theme]})

    def add(self, source: Path, name: str | None = None) -> str:
        """Copies a notebook into the server's folder and returns its name there."""
        target = self.root / (name or source.name)
        shutil.copyfile(source, target)
        return target.name

    def write(self, name: str, cells: Iterable[str], kernel: str = "python3") -> str:
        """Writes a new notebook with these cells (see `write_notebook`) and returns its name."""
        return write_notebook(self.root / name, cells, kernel).name

    def read(self, name: str) -> Any:
        """The notebook as it is saved on disk."""
        return nbformat.read(self.root / name, as_version=4)

    def open(self, page: Page, name: str, timeout_s: float = 90.0) -> Notebook:
        """Opens the notebook `name` in `page` and waits until its kernel is idle."""
        notebook = Notebook(self, page, name)
        notebook.load(timeout_s)
        return notebook

    def api(self, method: str, path: str) -> Any:
        """One call of the server's REST API; the decoded JSON, None for an empty answer.

        Raises:
            OSError: if the server refuses or is not there.
        """
        request = urllib.request.Request(f"{self.url}{path}", method=method)
        request.add_header("Authorization", f"token {self.token}")
        with urllib.request.urlopen(request, timeout=10) as answer:
            body = answer.read()
        return json.loads(body) if body else None

    def end_kernels(self) -> None:
        """Shuts every kernel down, as 'Shut Down All' does; notebooks reopened afterwards get new ones."""
        for one in self.api("GET", "/api/sessions"):
            self.api("DELETE", f"/api/sessions/{one['id']}")

    def _answers(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            raise TimeoutError(f"JupyterLab ended with code {self._process.returncode}.")
        try:
            self.api("GET", "/api/status")
        except OSError:
            return False
        return True

    def _write_settings(self, plugin: str, values: dict[str, Any]) -> None:
        folder = self._home / "settings" / "@jupyterlab" / "apputils-extension"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{plugin}.jupyterlab-settings").write_text(json.dumps(values))


def new_page(browser: Browser, width: int = 1280, height: int = 1000) -> tuple[BrowserContext, Page]:
    """A page in a context of its own (no cookies or storage of another test), `width` x `height` CSS pixels."""
    context = browser.new_context(viewport={"width": width, "height": height})
    return context, context.new_page()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
