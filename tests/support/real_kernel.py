"""A kernel in a process of its own, and what a front end hears of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from tests.support.jupyter_home import jupyter_environment
from tests.support.repository import ROOT

VIEW: Final = "gpu_doctor.notebook.widget.DoctorView"


class Kernel:
    """A kernel, and a front end that clicks in its panel."""

    def __init__(self, home: Path, manager: KernelManager | None = None) -> None:
        """Starts it with every Jupyter folder below `home`; it finds this package, wherever another is installed.

        Args:
            manager: of a kernel of another kind; None = this Python's.
        """
        self.manager = manager or KernelManager(kernel_name="python3")
        self.manager.start_kernel(env={**jupyter_environment(home), "PYTHONPATH": str(ROOT)}, cwd=str(home))
        self.client: BlockingKernelClient = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=90)
        self.panel = ""
        """Id of the newest panel's comm."""
        self.open: dict[str, str] = {}
        """Widgets that are open: id of the comm -> name of the class, or of its model."""
        self.statuses: list[str] = []
        """What the panel said of itself, in order."""
        self.numbers: list[int] = []
        """Of the panel's messages, in order."""
        self.shown: dict[str, Any] = {}
        """The panel's state as its page would have it, and the traits that were written since it was opened."""
        self.pages: list[str] = []
        """HTML that was displayed."""
        self.printed: dict[str, str] = {}
        """By request: what it printed."""
        self.weights: list[tuple[str, int]] = []
        """Of each message of a widget since this was last cleared: its kind and its bytes."""
        self.plotted: float | None = None
        """When the first points for the panel's plots were heard (monotonic seconds)."""
        self.done: set[str] = set()
        """Requests that the kernel has come to the end of."""

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def listen(self, until: Any, what: str, timeout_s: float = 90.0) -> None:
        """Reads what the kernel publishes until `until()`."""
        deadline = time.monotonic() + timeout_s
        while not until():
            left = deadline - time.monotonic()
            assert left > 0, f"{what}: not within {timeout_s:g} s; the panel said {self.statuses}"
            self._heard(self.client.get_iopub_msg(timeout=left))

    def run(self, code: str, cell: str = "", deleted: Sequence[str] = (), timeout_s: float = 90.0) -> str:
        """Runs a cell to its end; what it printed.

        Args:
            cell, deleted: what JupyterLab says of the cell that it runs, and of those deleted before.
        """
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
        metadata = {"cellId": cell, "deletedCells": list(deleted)} if cell else {}
        message = self.client.session.msg("execute_request", content, metadata=metadata)
        self.client.shell_channel.send(message)
        asked = message["header"]["msg_id"]
        self.listen(lambda: asked in self.done, "A cell did not end", timeout_s)
        return self.printed.get(asked, "")

    def interrupt(self) -> None:
        """As the stop button of a notebook does."""
        self.manager.interrupt_kernel()

    def subshell(self) -> str:
        """A further shell, on a thread of its own: JupyterLab sends what widgets say there."""
        self.client.control_channel.send(self.client.session.msg("create_subshell_request"))
        made: str = self.client.get_control_msg(timeout=30)["content"]["subshell_id"]
        return made

    def click(self, subshell: str = "", **asked: Any) -> None:
        """Asks as the panel's script does."""
        content = {"comm_id": self.panel, "data": {"method": "custom", "content": asked}}
        message = self.client.session.msg("comm_msg", content)
        if subshell:
            message["header"]["subshell_id"] = subshell
        self.client.shell_channel.send(message)

    def _heard(self, message: dict[str, Any]) -> None:
        kind, content, parent = message["msg_type"], message["content"], message["parent_header"].get("msg_id", "")
        if kind == "comm_open":
            state = content["data"]["state"]
            self.open[content["comm_id"]] = state.get("_anywidget_id") or state.get("_model_name", "")
            if state.get("_anywidget_id") == VIEW:
                self.panel, self.numbers, self.shown = content["comm_id"], [], {"traits": state}
        if kind == "comm_close":
            self.open.pop(content["comm_id"], None)
        if kind.startswith("comm_"):
            self.weights.append((kind, len(json.dumps(content)) + sum(map(len, message["buffers"]))))
        if kind == "comm_msg" and content["comm_id"] == self.panel and content["data"]["method"] == "custom":
            told = content["data"]["content"]
            self.statuses += [one for one in [told["state"].get("status")] if one]
            self.numbers.append(told["seq"])
            if self.plotted is None and any(map(len, message["buffers"])):
                self.plotted = time.monotonic()
            self.shown |= told["state"]
        if kind == "comm_msg" and content["comm_id"] == self.panel and content["data"]["method"] == "update":
            self.shown["traits"] |= content["data"]["state"]
        if kind in ("display_data", "execute_result", "update_display_data"):
            self.pages += [content["data"]["text/html"]] if "text/html" in content["data"] else []
        if kind == "stream":
            self.printed[parent] = self.printed.get(parent, "") + content["text"]
        assert kind != "error", content
        if kind == "status" and content["execution_state"] == "idle":
            self.done.add(parent)


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    one = Kernel(tmp_path)
    try:
        yield one
    finally:
        one.close()
