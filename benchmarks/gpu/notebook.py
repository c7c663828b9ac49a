"""The main job: a kernel executes the quickstart under `%%gpudoctor`, and a click in the panel runs one trial.

Kept are the executed notebook and all that the panel's page would have heard.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import nbformat
from nbformat.v4 import output_from_msg

from benchmarks.gpu.kept import OutOfTime, Row, Stage, row
from tests.support.real_kernel import Kernel
from tests.support.repository import ROOT

PATH: Final = ROOT / "notebooks" / "01_quickstart.ipynb"
MOST_BUFFER: Final = 1 << 17
"""A longer buffer of a message is not kept; the plots' library is one."""
OUTPUTS: Final = ("stream", "display_data", "execute_result", "error")
CLICKED: Final = {"num_workers": 2}
FEWER: Final = {"24_000": "3_000", "steps=50": "steps=12, seconds=5"}
"""A rehearsal replaces these."""
BEGUN: Final = """
import IPython, anywidget, bokeh, ipywidgets, sys
from benchmarks.gpu.device import device
_device = device(True) if {} else None
_name = _device.__enter__() if _device else "cuda"
print("Python", sys.version.split()[0], "IPython", IPython.__version__, "Bokeh", bokeh.__version__, "trains on", _name)
"""
ASKED: Final = """
import torch
def _look():
    import gpu_doctor, json
    case = gpu_doctor.last_case()
    found = gpu_doctor.diagnose(case.recordings[0])
    steps = case.recordings[0].steps
    print(json.dumps({
        "findings": [(one.rule, round(one.cost_share, 3)) for one in found.findings],
        "bottleneck": found.bottleneck,
        "steps": int(steps.count.sum()),
        "device_steps": int((steps.device_steps > 0).sum()),
        "notes": list(case.recordings[0].notes),
        "shares": {one: getattr(found.vitals, one, None) for one in SHARES},
        "metrics": sorted({one.metric.name for one in case.recordings[0].series}),
        "effects": [str(one) for one in case.effects],
    }))
_look()
"""
SHARES: Final = ("exposed_wait_share", "exposed_transfer_share", "gpu_gap_share", "gpu_busy_share", "gpu_util_pct")


class Listened(Kernel):
    """Writes down what is heard, and what each cell puts out."""

    def __init__(self, home: Path, heard: Path) -> None:
        self._heard_file = heard.open("w", encoding="utf-8")
        self._began = time.monotonic()
        self.outputs: dict[str, list[Any]] = {}
        """They stand by the request that put them out."""
        super().__init__(home)

    def _heard(self, message: dict[str, Any]) -> None:
        kind, content = message["msg_type"], message["content"]
        if kind.startswith("comm_"):
            buffers = [bytes(one) for one in message["buffers"]]
            told = [base64.b64encode(one).decode() if len(one) <= MOST_BUFFER else len(one) for one in buffers]
            line = {"at_s": round(time.monotonic() - self._began, 3), "kind": kind, "content": content, "buffers": told}
            self._heard_file.write(json.dumps(line) + "\n")
            self._heard_file.flush()
        if kind in OUTPUTS:
            self.outputs.setdefault(message["parent_header"].get("msg_id", ""), []).append(output_from_msg(message))
        if kind != "error":
            super()._heard(message)


def run(stage: Stage) -> None:
    """Runs the cells; after the doctored one it asks what was recorded, and clicks."""
    home = stage.work / "home"
    home.mkdir(parents=True, exist_ok=True)
    read: Any = nbformat.read  # has no types
    book = read(PATH, as_version=4)
    kernel: Kernel | None = None

    def begun() -> Row:
        nonlocal kernel
        kernel = Listened(home, stage.work / "panel.jsonl")
        return row(kernel.run(BEGUN.format(stage.rehearse)).strip(), True)

    def cell(one: Any) -> Row:
        assert isinstance(kernel, Listened)
        for full, small in FEWER.items():
            one.source = one.source.replace(full, small) if stage.rehearse else one.source
        began = time.monotonic()
        asked = kernel.client.execute(one.source)
        try:
            kernel.listen(lambda: asked in kernel.done, "The cell did not end", stage.seconds())
        except OutOfTime:
            kernel.interrupt()
            raise
        finally:
            one.outputs = kernel.outputs.get(asked, [])
            nbformat.write(book, stage.work / PATH.name)
        failed = [out for out in one.outputs if out.output_type == "error"]
        said = f"{time.monotonic() - began:.1f} s" + "".join(f"; {out.ename}: {out.evalue}" for out in failed)
        return row(said, not failed)

    works: dict[str, Callable[[], Row]] = {"kernel": begun}
    for one in book.cells:
        if one.cell_type == "code":
            works[f"cell {one.id}"] = partial(cell, one)
            if one.id == "quickstart-06":
                works["recorded"] = lambda: recorded(kernel)
                works["clicked"] = lambda: clicked(kernel, stage)
    stage.rows.clear()  # a notebook is run from its begin or not at all
    try:
        stage.run(works, share=6.0)
    finally:
        if kernel is not None:
            kernel.close()


def recorded(kernel: Any) -> Row:
    """Asks the kernel what the diagnosis of the first run rests on."""
    found = json.loads(kernel.run(f"SHARES = {SHARES!r}\n{ASKED}").strip().splitlines()[-1])
    told = ", ".join(f"{rule} {100 * cost:.0f} %" for rule, cost in found["findings"]) or "nothing found"
    said = f"{found['bottleneck']}: {told}; {found['device_steps']} of {found['steps']} steps timed on the device"
    return row(said, found["device_steps"] > 0 and bool(found["findings"]), **found)


def clicked(kernel: Any, stage: Stage) -> Row:
    """Clicks for a trial as the panel's page does, and waits for its end."""
    if not kernel.panel:
        raise RuntimeError(f"no panel was opened: {[page[:200] for page in kernel.pages]}")
    began, before = time.monotonic(), len(kernel.statuses)
    kernel.click(ask="trial", settings=dict(CLICKED), steps=stage.size(50, 10), seconds=stage.size(10, 3))
    kernel.listen(lambda: "trial" in kernel.statuses[before:], "It did not begin", stage.seconds())
    ended = len(kernel.statuses)
    kernel.listen(
        lambda: "idle" in kernel.statuses[ended:] or "done" in kernel.statuses[ended:], "It did not end", 60.0
    )
    took = time.monotonic() - began
    effect = kernel.run("print(__import__('gpu_doctor').last_case().effects[-1])").strip()
    return row(f"{effect} ({took:.1f} s, {len(kernel.numbers)} messages)", bool(effect), statuses=kernel.statuses)
