"""A JupyterLab page that tells what happens in it: messages, long tasks, heap; and the memory of its kernel."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import CDPSession, Page

from tests.support.lab import Lab
from tests.support.open_notebook import Notebook

LISTENING: Final = r"""
(() => {
  const bench = window.bench = { frames: [], tasks: [], scripts: [] };
  const text = new TextDecoder('latin1');
  const heard = ({ data }) => {
    const now = performance.now();
    const whole = typeof data === 'string' ? data : data instanceof ArrayBuffer ? text.decode(data) : '';
    const kind = whole.slice(0, 2000).match(/"msg_type":\s*"(\w+)"/)?.[1] ?? '';
    const rows = kind === 'comm_msg' && whole.length < 400000 && /"lines":\s*\[\[/.test(whole);
    bench.frames.push([now, whole.length, kind, rows]);
  };
  const Plain = window.WebSocket;
  window.WebSocket = class extends Plain {
    constructor(url, ...rest) {
      super(url, ...rest);
      if (String(url).includes('/api/kernels/')) this.addEventListener('message', heard);
    }
  };
  const observe = (type, told) => new PerformanceObserver((list) => list.getEntries().forEach(told)).observe({ type });
  observe('longtask', (one) => bench.tasks.push([one.startTime, one.duration]));
  observe('long-animation-frame', (frame) => {
    for (const one of frame.scripts) {
      bench.scripts.push([one.startTime, one.duration, `${one.invoker} ${one.sourceURL.slice(-60)}`]);
    }
  });
  bench.painted = () => {
    const before = new Set(document.querySelectorAll('[data-gpu-doctor]'));
    const since = { asked: performance.now(), frame: bench.frames.length };
    window.painted = new Promise((then) => {
      const look = () => {
        const panel = [...document.querySelectorAll('[data-gpu-doctor]')].find((one) => !before.has(one));
        if (panel?.innerText.length > 20) since.text ??= performance.now();
        if (panel?.querySelectorAll('.gd-cell > .bk-Figure').length === 3) {
          const start = bench.frames.slice(since.frame).find((one) => one[2] === 'execute_input')[0];
          requestAnimationFrame(() => then({
            clicked: since.text - since.asked, text: since.text - start, plots: performance.now() - start,
          }));
        } else requestAnimationFrame(look);
      };
      requestAnimationFrame(look);
    });
  };
})();
"""


class Watched:
    """A notebook whose page and kernel are looked at."""

    def __init__(self, lab: Lab, page: Page, name: str, cells: list[str]) -> None:
        """Opens it and runs its first two cells: what is needed, and a first panel, which loads BokehJS."""
        page.add_init_script(LISTENING)
        self.page = page
        self.notebook: Notebook = lab.open(page, lab.write(name, cells))
        self._tools: CDPSession = page.context.new_cdp_session(page)
        self.notebook.run_cell(0, wait_s=120)
        self.notebook.run_cell(1, wait_s=120)
        page.wait_for_function("document.querySelectorAll('.gd-cell > .bk-Figure').length === 3", timeout=30_000)
        page.wait_for_timeout(1000)
        self.pid = int(self.notebook.kernel_value("__import__('os').getpid()"))

    def now(self) -> float:
        """The page's clock, ms."""
        return float(self.page.evaluate("performance.now()"))

    def since(self, what: str, begin: float) -> list[Any]:
        """The page's `frames`, `tasks` or `scripts` that began after a moment."""
        found: list[Any] = self.page.evaluate(f"bench.{what}.filter((one) => one[0] >= {begin})")
        return found

    def printed(self, cell: int, word: str) -> list[float]:
        """The figures of the line that a cell printed after a word."""
        lines = self.notebook.stream_text(cell).splitlines()
        return next([float(one) for one in line.split()[1:]] for line in lines if line.startswith(word))

    def traced(self, work: Callable[[], None]) -> list[float]:
        """Does something; ms of CPU of the page's tasks meanwhile: other programs do not lengthen these."""
        browser = self.page.context.browser
        assert browser is not None
        browser.start_tracing(page=self.page, categories=["toplevel"])
        try:
            work()
        finally:
            events = json.loads(browser.stop_tracing())["traceEvents"]
        mains = {
            (one["pid"], one["tid"])
            for one in events
            if one["name"] == "thread_name" and one["args"]["name"] == "CrRendererMain"
        }
        tasks = [one for one in events if "tdur" in one and (one["pid"], one["tid"]) in mains]
        if not tasks:
            raise RuntimeError("Chromium traced no task of the page: nothing was measured.")
        return [one["tdur"] / 1e3 for one in tasks]

    def heap_mb(self) -> float:
        """What JavaScript holds in the page after collecting garbage."""
        for _ in range(2):
            self._tools.send("HeapProfiler.collectGarbage")
        return float(self._tools.send("Runtime.getHeapUsage")["usedSize"]) / 1e6

    def kernel_mb(self, collect: bool = True) -> float:
        """Memory that the kernel has written, of an idle one after collecting garbage."""
        if collect:
            self.notebook.kernel_value("__import__('gc').collect()")
        return written_mb(self.pid)


def written_mb(pid: int) -> float:
    """Memory that a process alone has written: what it only reads of libraries counts or not as other processes go."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty")) * 1024 / 1e6
