"""Brings the news of a run to the page about twice a second, from a thread of its own; a failing view touches nothing."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from IPython.display import display

from gpu_doctor.feed import Cursor, Feed, News, series_key
from gpu_doctor.knobs.knob import KnobTable
from gpu_doctor.notebook.bokeh_view import DoctorView
from gpu_doctor.notebook.panel import PanelInput, state
from gpu_doctor.notebook.plots import BYTES_A_GIB, Plots, Trace
from gpu_doctor.probes.nvml import devices
from gpu_doctor.recording import Steps

ASKS: Final = ("stop", "trial", "real", "treat", "rows")
MOST_STEPS: Final = 100_000


class Dashboard:
    """One panel in the page: what it looks at, what it sends, what it is asked."""

    def __init__(
        self,
        look: Callable[[], PanelInput],
        request: Callable[[dict[str, Any]], None],
        knobs: KnobTable,
        *,
        period_s: float = 0.5,
        on_gpu: bool | None = None,
    ) -> None:
        """Makes the widget; nothing is displayed yet.

        Args:
            look: gives the case as it stands; called on the refresher's thread.
            request: takes a validated request of the page; may be called on any thread.
            knobs: what the panel lets a person turn. period_s: between two refreshes.
            on_gpu: whether there is a GPU to draw lines for; None = ask NVML.
        """
        self._look, self._request, self._knobs, self._period_s = look, request, knobs, period_s
        self.plots = Plots(bool(devices()) if on_gpu is None else on_gpu)
        self.view = DoctorView(self.plots.item, self.plots.ids, self._asked)
        self.failure = ""
        """Why the view stopped, in one sentence; empty while it works."""
        self.cpu_s = 0.0
        """CPU seconds that refreshing has cost."""
        self._feed: Feed | None = None
        self._cursor = Cursor()
        self._role = "run"
        self._sent_state = ""
        self._pushing = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def show(self) -> None:
        """Displays the panel."""
        self._send_state()
        self.view.state = json.loads(self._sent_state)
        display(self.view)  # type: ignore[no-untyped-call]

    def follow(self, feed: Feed, role: str = "run") -> None:
        """Follows another run: a new run clears all lines, a trial's candidate is laid over them."""
        with self._pushing:
            self._feed, self._cursor, self._role = feed, Cursor(), role
            for key, trace in self.plots.traces.items():
                if role == "run" or key.startswith("trial_"):
                    trace.clear()

    def start(self) -> None:
        """Starts the refresher if it is not running."""
        if self._thread is not None or self.failure:
            return
        self._stopping.clear()
        self._thread = threading.Thread(target=self._refresh, name="gpu_doctor-refresher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops the refresher after a last refresh."""
        thread, self._thread = self._thread, None
        self._stopping.set()
        if thread is not None:
            thread.join(5.0)

    def _refresh(self) -> None:
        while True:
            self.push()
            if self._stopping.wait(self._period_s):
                return

    def push(self) -> None:
        """One refresh now, on any thread; if another is under way, that one is enough. Never raises."""
        if self.failure or not self._pushing.acquire(blocking=False):
            return
        begin = time.thread_time()
        try:
            self._push_rows()
            self._send_state()
        except Exception as error:
            self.failure = f"The live view stopped ({type(error).__name__}: {error}); the run is not touched by it."
        finally:
            self.cpu_s += time.thread_time() - begin
            self._pushing.release()

    def last(self) -> None:
        """Writes everything down in traits, for a page that is loaded later. Never raises."""
        self.push()
        try:
            with self._pushing:
                self.view.rows = self._all_rows()
                self.view.state = json.loads(self._sent_state or "{}")
        except Exception as error:
            self.failure = f"The live view stopped ({type(error).__name__}: {error}); the run is not touched by it."

    # ---- to the page --------------------------------------------------------------------------------------------

    def _push_rows(self) -> None:
        if self._feed is None:
            return
        news = self._feed.news(self._cursor)
        self._cursor = news.cursor
        self._take(news)
        changed = {key: said for key, trace in self.plots.traces.items() if (said := trace.news()) is not None}
        if changed:
            self.view.send({"kind": "rows", "lines": changed})

    def _take(self, news: News) -> None:
        """The news as points of the lines."""
        traces = self.plots.traces
        if self._role != "baseline":
            prefix = "" if self._role == "run" else "trial_"
            if news.reset:
                for name in ("step_ms", "wait_ms", "exposed_ms"):
                    if f"{prefix}{name}" in traces:
                        traces[f"{prefix}{name}"].clear()
            self._take_steps(news.steps, prefix)
        if self._role == "run":
            for series in news.series:
                trace = traces.get(
                    series.metric.name if series.metric.device in (None, 0) else series_key(series.metric)
                )
                if trace is not None:
                    scale = BYTES_A_GIB if series.metric.unit == "bytes" else 1.0
                    trace.add(series.times_s, series.values / scale)

    def _take_steps(self, steps: Steps, prefix: str) -> None:
        if not len(steps):
            return
        end_s = steps.start_s + steps.wall_s
        batches = np.maximum(steps.batches, 1.0)
        lines = {
            "step_ms": (steps.wall_s - steps.evaluation_s) / steps.count,
            "wait_ms": steps.data_wait_s / batches,
            "exposed_ms": np.minimum(steps.data_wait_s, steps.gpu_gap_s) / batches,
        }
        for name, seconds in lines.items():
            trace: Trace | None = self.plots.traces.get(f"{prefix}{name}")
            if trace is not None:
                trace.add(end_s, seconds * 1e3)

    def _all_rows(self) -> dict[str, Any]:
        return {key: trace.news(everything=True) for key, trace in self.plots.traces.items()}

    def _send_state(self) -> None:
        said = json.dumps(state(self._look(), self._knobs), default=str)
        if said != self._sent_state:
            self._sent_state = said
            self.view.send({"kind": "state", "state": json.loads(said)})

    # ---- from the page ------------------------------------------------------------------------------------------

    def _asked(self, content: Any) -> None:
        """A message of the page, on whatever thread it comes; what does not fit the form is ignored."""
        if not isinstance(content, dict) or content.get("ask") not in ASKS:
            return
        if content["ask"] == "rows":
            with self._pushing:
                self.view.send({"kind": "rows", "lines": self._all_rows()})
                self.view.send({"kind": "state", "state": json.loads(self._sent_state or "{}")})
            return
        settings, steps = content.get("settings", {}), content.get("steps", 50)
        known = isinstance(settings, dict) and all(
            name in self._knobs and isinstance(value, (str, int, float, bool)) for name, value in settings.items()
        )
        if not known or not isinstance(steps, int) or not 1 <= steps <= MOST_STEPS:
            return
        self._request(
            {
                "ask": content["ask"],
                "settings": settings,
                "steps": steps,
                "changes_training": content.get("changes_training") is True,
            }
        )
