"""A live panel that cannot be shown, fails or is closed: the cell runs on, one sentence says so, the result stands."""

from __future__ import annotations

import importlib.metadata
import re
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import ipywidgets
import pytest
from IPython.core.interactiveshell import InteractiveShell

import gpu_doctor
from gpu_doctor.notebook.live_view import Dashboard
from gpu_doctor.notebook.panel_needs import NEEDS
from gpu_doctor.notebook.widget import DoctorView
from tests.support.repository import ROOT
from tests.support.shells import LOOP, ran, with_the_magic
from tests.support.shells import one_shell as one_shell

CELL = "%%gpudoctor\n" + LOOP


@pytest.fixture
def shell(one_shell: InteractiveShell) -> Iterator[InteractiveShell]:
    """A shell that has a kernel, as a notebook's, and the comms of the tests' process."""
    from comm import get_comm_manager

    with with_the_magic(one_shell):
        one_shell.kernel = SimpleNamespace(comm_manager=get_comm_manager())  # type: ignore[attr-defined]
        yield one_shell
        del one_shell.kernel  # type: ignore[attr-defined]
    ipywidgets.Widget.close_all()


def said_of_the_view(shell: InteractiveShell, cell: str = CELL, beside: int = 0) -> str:
    """Runs a cell whose view fails; all that is shown in words, one sentence of it on that.

    Args:
        beside: how many widgets are shown all the same.
    """
    before = set(threading.enumerate())
    result, out, err, outputs = ran(shell, cell)
    assert result.success, result.error_in_exec
    assert len(shell.user_ns["losses"]) == 20
    case = gpu_doctor.last_case()
    assert case is not None and len(case.recordings[-1].steps) == 20
    assert out == err == ""
    assert set(threading.enumerate()) <= before
    shown = [one.data for one in outputs if "text/html" in one.data]
    widgets = [one.data for one in outputs if "application/vnd.jupyter.widget-view+json" in one.data]
    assert len(widgets) == beside
    assert case.diagnosis is not None and case.diagnosis.verdict in " ".join(shown[-1]["text/plain"].split())
    for kind in ("text/plain", "text/html"):
        told = " ".join(" ".join(one[kind] for one in shown).split())
        assert len(re.findall("live panel|live view", told)) == 1, told
    return " ".join(" ".join(one["text/plain"] for one in shown).split())


def test_a_view_that_works_is_not_spoken_of(shell: InteractiveShell) -> None:
    result, _, err, outputs = ran(shell, CELL)
    assert result.success and err == ""
    assert "live panel" not in outputs[-1].data["text/plain"]
    assert "live panel" in outputs[0].data["text/plain"], "what stands in its place where no widget is drawn"
    assert len(outputs[0].data["text/plain"]) < 110 and "…" not in outputs[0].data["text/plain"]


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A kernel in which a package is not installed."""

    def taken_away(package: str) -> None:
        found = importlib.metadata.version

        def version(name: str) -> str:
            if name == package:
                raise importlib.metadata.PackageNotFoundError(name)
            return found(name)

        monkeypatch.setattr("gpu_doctor.notebook.panel_needs.version", version)
        for module in list(sys.modules):
            if module in ("gpu_doctor.notebook.live_view", "gpu_doctor.notebook.widget", "gpu_doctor.notebook.plots"):
                monkeypatch.delitem(sys.modules, module)
            elif module.partition(".")[0] == package:
                monkeypatch.setitem(sys.modules, module, None)

    return taken_away


@pytest.mark.parametrize("package", list(NEEDS))
def test_a_kernel_without_a_package(shell: InteractiveShell, without: Callable[[str], None], package: str) -> None:
    without(package)
    said = said_of_the_view(shell)
    assert f"this kernel has no {package} (%pip install {package}" in said


def test_an_anywidget_that_is_too_old(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    old = {**{name: importlib.metadata.version(name) for name in NEEDS}, "anywidget": "0.8.1"}
    monkeypatch.setattr("gpu_doctor.notebook.panel_needs.version", old.__getitem__)
    assert 'anywidget 0.8.1 is too old (%pip install "anywidget>=0.9", then restart' in said_of_the_view(shell)


def test_what_the_panel_needs_is_what_the_package_asks_for() -> None:
    asked = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for package, least in NEEDS.items():
        assert f'"{package}>={least}"' in asked


def _fails(*_: Any, **__: Any) -> Any:
    raise ValueError("by our own fault")


@pytest.mark.parametrize(
    ("broken", "widgets"),
    [("__init__", 0), ("show", 0), ("start", 1), ("follow", 1), ("_push", 1), ("stop", 1), ("last", 1)],
)
def test_a_view_that_fails(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch, broken: str, widgets: int) -> None:
    monkeypatch.setattr(Dashboard, broken, _fails)
    if broken == "stop":  # its thread goes on until it finds that it failed: not left to this test
        monkeypatch.setattr(Dashboard, "start", lambda _: None)
    assert "ValueError: by our own fault" in said_of_the_view(shell, beside=widgets)


def test_a_connection_that_breaks(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DoctorView, "send", _fails)
    assert "The live view stopped (ValueError: by our own fault)" in said_of_the_view(shell, beside=1)


def test_a_panel_that_is_closed_meanwhile(shell: InteractiveShell) -> None:
    shell.user_ns["close_all"] = ipywidgets.Widget.close_all
    cell = CELL.replace("losses = []", "close_all()\nlosses = []")
    assert "closed while the cell ran" in said_of_the_view(shell, cell, beside=1)


def test_a_panel_that_the_page_closes(shell: InteractiveShell) -> None:
    manager = shell.kernel.comm_manager  # type: ignore[attr-defined]

    def closed_by_the_page() -> None:
        for name in list(manager.comms):
            manager.comm_close(None, None, {"content": {"comm_id": name, "data": {}}})

    shell.user_ns["closed_by_the_page"] = closed_by_the_page
    cell = CELL.replace("losses = []", "closed_by_the_page()\nlosses = []")
    assert "was closed while the cell ran" in said_of_the_view(shell, cell, beside=1)


def test_an_error_of_the_users_passes_a_view_that_fails(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Dashboard, "start", _fails)
    result, _, _, outputs = ran(shell, CELL + "\nraise KeyError('theirs')")
    assert isinstance(result.error_in_exec, KeyError)
    assert "by our own fault" in " ".join(outputs[-1].data["text/plain"].split())
