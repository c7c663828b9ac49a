"""`%%gpudoctor` under a kernel as old as Google Colab's: ipykernel 6.17.1, IPython 7.34, ipywidgets 7.7.1.

The test speaks to the kernel as a front end does, and reads what comes over the wire in the order in which it comes.
The quickstart runs whole, beside a stand-in for Colab's own package: what anywidget and we look for in it is there.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from tests.support.colab import COLABS, QUICKSTART_CELL_S
from tests.support.real_kernel import Kernel
from tests.support.repository import ROOT
from tests.support.session_kernel import write_kernelspec

pytestmark = [pytest.mark.extra, pytest.mark.timeout(600)]

ABORTING_MOST_S: Final = 30.0
"""As long as a kernel may need to run `pass` on a busy machine."""

SETUP = """
import time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self): return 4000
    def __getitem__(self, index):
        time.sleep(5e-4)  # so long that workers gain even where starting them is slow
        return torch.randn(64), index % 10

loader = DataLoader(Rows(), batch_size=32, shuffle=True, num_workers=0)
model = nn.Linear(64, 10)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
"""
TRAINING = """%%gpudoctor
running_loss = 0.0
for epoch in range(4):
    for step, (inputs, targets) in enumerate(loader):
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        running_loss += loss.item()
        if step % 100 == 0:
            print("step", step)
print("trained")
'last value'
"""


SHORT: Final = """%%gpudoctor --steps 20
for inputs, targets in loader:
    criterion(model(inputs), targets).backward()
    optimizer.step()
"""


def old_manager(home: Path) -> KernelManager:
    """Of a kernel that is not started yet; its specification lies below `home`."""
    name = write_kernelspec(home / "data")
    specs = KernelSpecManager(kernel_dirs=[str(home / "data" / "kernels")], ensure_native_kernel=False)
    return KernelManager(kernel_name=name, kernel_spec_manager=specs)


@dataclass
class Heard:
    """All that a kernel published for one request, in order."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    reply: dict[str, Any] = field(default_factory=dict)

    def contents(self, kind: str) -> list[dict[str, Any]]:
        return [one["content"] for one in self.messages if one["msg_type"] == kind]

    def text(self, stream: str) -> str:
        return "".join(content["text"] for content in self.contents("stream") if content["name"] == stream)

    def html(self) -> list[str]:
        shown = self.contents("display_data") + self.contents("execute_result") + self.contents("update_display_data")
        return [content["data"]["text/html"] for content in shown if "text/html" in content["data"]]


class OldKernel(Kernel):
    """A running kernel of the old environment."""

    def __init__(self, home: Path) -> None:
        """Starts it with every Jupyter folder below `home`."""
        super().__init__(home, old_manager(home))

    def hear(self, code: str, timeout_s: float = 120) -> Heard:
        """Executes a cell and listens until the kernel is idle again."""
        heard = Heard()
        heard.reply = self.client.execute_interactive(code, timeout=timeout_s, output_hook=heard.messages.append)[
            "content"
        ]
        return heard

    def wait_until_it_answers(self) -> None:
        """Waits: a kernel aborts what reaches it right after an error (ipykernel's `stop_on_error_timeout`).

        Raises:
            AssertionError: if it still does after `ABORTING_MOST_S`.
        """
        deadline = time.monotonic() + ABORTING_MOST_S
        while (reply := self.hear("pass").reply)["status"] == "aborted":
            assert time.monotonic() < deadline, reply
            time.sleep(0.05)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OldKernel]:
    """The old kernel with the extension loaded and a loop prepared."""
    one = OldKernel(tmp_path_factory.mktemp("old_kernel"))
    try:
        yield one
    finally:
        one.close()


@pytest.fixture(scope="module")
def trained(kernel: OldKernel) -> Heard:
    """What the kernel published while the doctored cell ran."""
    for code in (SETUP, "%load_ext gpu_doctor"):
        heard = kernel.hear(code)
        assert heard.reply["status"] == "ok", heard.reply
        assert heard.text("stderr") == ""
    return kernel.hear(TRAINING)


def test_it_is_the_kernel_that_colab_ships(kernel: OldKernel) -> None:
    said = kernel.hear(
        "import IPython, ipykernel, ipywidgets\n"
        "print(ipykernel.__version__, IPython.__version__, ipywidgets.__version__)"
    )
    assert said.text("stdout").split() == ["6.17.1", "7.34.0", "7.7.1"]


def test_the_cell_runs_and_keeps_its_meaning(trained: Heard, kernel: OldKernel) -> None:
    assert trained.reply["status"] == "ok", trained.reply
    assert trained.text("stderr") == ""
    assert trained.text("stdout").endswith("trained\n")
    values = [content["data"].get("text/plain") for content in trained.contents("execute_result")]
    assert "'last value'" in values
    assert kernel.hear("print(step, running_loss > 0)").text("stdout") == "124 True\n"


def test_the_tab_key_completes_our_lines_and_nothing_else_in_them(trained: Heard, kernel: OldKernel) -> None:
    def offered(code: str) -> list[str]:
        reply = kernel.client.complete(code, reply=True, timeout=60)
        matches: list[str] = reply["content"]["matches"]
        return matches

    assert offered("%gpudoctor explain slow-ge") == ["slow-getitem", "slow-generator"]
    assert offered("%%gpudoctor --s") == ["--steps", "--seconds", "--set", "--save"]
    assert offered("%%gpudoctor --set num_w") == ["num_workers="]


def test_an_interrupt_ends_the_run_with_its_diagnosis(trained: Heard, kernel: OldKernel) -> None:
    endless = TRAINING.replace("range(4)", "range(10_000)").replace('print("step", step)', 'print("at", step)')
    pressed: list[bool] = []

    def press_once(message: dict[str, Any]) -> None:
        heard.messages.append(message)
        if message["msg_type"] == "stream" and "at 100" in heard.text("stdout") and not pressed:
            pressed.append(True)
            kernel.manager.interrupt_kernel()

    heard = Heard()
    heard.reply = kernel.client.execute_interactive(endless, timeout=60, output_hook=press_once)["content"]
    assert pressed
    assert heard.reply["status"] == "error"
    assert heard.reply["ename"] == "KeyboardInterrupt"
    assert any("gpu-doctor-static" in html for html in heard.html())
    kernel.wait_until_it_answers()
    said = kernel.hear("import gpu_doctor; print(gpu_doctor.last_case().recordings[-1].outcome)")
    assert said.text("stdout") == "interrupted\n"


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A kernel as in Colab in which every cell of the quickstart ran; one that fails ends it."""
    home = tmp_path_factory.mktemp("quickstart")
    one = Kernel(home, old_manager(home))
    try:
        one.run(COLABS)
        for cell in nbformat.read(ROOT / "notebooks" / "01_quickstart.ipynb", as_version=4).cells:
            if cell.cell_type == "code":
                one.run(cell.source, timeout_s=QUICKSTART_CELL_S)
        yield one
    finally:
        one.close()


def test_the_quickstart_runs_whole_and_its_panel_has_been_told_all(quickstart: Kernel) -> None:
    assert quickstart.run("print(output.asked, sorted({'google.colab'} & set(sys.modules)))").startswith("['manager']")
    assert len(quickstart.numbers) >= 4, "news came while the cell ran"
    assert quickstart.numbers == list(range(1, len(quickstart.numbers) + 1)), "no number is missing"
    assert quickstart.statuses[0] == "recording" and quickstart.statuses[-1] == "idle"
    # Of the last cell, which has two workers: whether more of them would help depends on how busy the machine is.
    assert re.search("wait(s|ing) for data", quickstart.shown["verdict"]["text"])
    written = quickstart.shown["traits"]
    assert written["state"]["status"] == "idle" and written["rows"]["seq"] == quickstart.numbers[-1]
    assert "source" not in written["bokeh"], "the loader carries it"
    assert any("gpu-doctor-static" in page for page in quickstart.pages)


def test_what_its_page_sends_is_answered(quickstart: Kernel) -> None:
    """Colab's own manager may not find the loader: the panel is sent BokehJS, and the next one brings it along."""

    def traits() -> dict[str, Any]:
        found: dict[str, Any] = quickstart.shown["traits"]
        return found

    quickstart.click(ask="bokeh")
    quickstart.listen(lambda: "source" in traits()["bokeh"], "BokehJS was not sent")
    before = len(quickstart.shown["table"]["rows"])
    settings = {"num_workers": 2}
    quickstart.click(ask="trial", settings=settings, steps=20, seconds=5, changes_training=False)
    quickstart.listen(lambda: len(quickstart.shown["table"]["rows"]) > before, "The trial left no row")
    quickstart.listen(lambda: quickstart.statuses[-1] == "idle", "The trial did not end")
    quickstart.run(SHORT)
    assert len(traits()["bokeh"]["source"]) > 1_000_000
