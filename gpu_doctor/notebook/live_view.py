"""Sends the news of a run to the page twice a second from its own thread; a failing view does not affect the run.

Every message has a number (`seq`), one more than the message before. A page that finds a gap, such as a page loaded
during a run, requests the state and gets a message with all of it.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.ma  # np.percentile loads it at its first call, which should not happen while the cell runs
from IPython.display import display

from gpu_doctor import formatting
from gpu_doctor.machine.nvml import probe
from gpu_doctor.notebook.plots import document
from gpu_doctor.notebook.widget import DoctorView
from gpu_doctor.recording import Feed, describe
from gpu_doctor.report import PLOTS, Layer, Line, Marks, expected, in_order
from gpu_doctor.report.panel import BUSY, STATUS, Memory, PanelInput, Points, as_json, checked_request, state
from gpu_doctor.trials.knobs import KnobTable

PERIOD_S: Final = 0.5
"""Time between two refreshes, in seconds."""
OWN_SHARE: Final = 0.01
"""Part of one core that refreshing may use: after a refresh of t seconds, the next begins at least t / 0.01 s later."""
NO_POINTS: Final = Points((), (), {}, 0.0, {}, (), ())
GREETING_S: Final = 3.0
"""Seconds after the start within which a page's first message arrives, if the front end delivers messages while the
cell runs. VS Code and nbclassic deliver them only after it."""
LATEST: Final = 8
"""Largest time between two refreshes, in periods. A slow refresh, such as the first, must leave time for the verdict,
which is promised within 5 s."""


class Dashboard:
    """One panel in the page: reads the state of a case, sends it to the page, and receives the page's requests."""

    def __init__(
        self,
        look: Callable[[], PanelInput],
        request: Callable[[dict[str, Any]], None],
        knobs: KnobTable,
        *,
        gpus: Sequence[int] | None = None,
    ) -> None:
        """Makes the widget without displaying it.

        Args:
            look: returns the current state of the case; called on the refresher's thread.
            request: takes a checked request of the page; called on any thread, so it must only post the request.
            knobs: knobs that the panel offers.
            gpus: indices of the GPUs to draw lines for at first; None for those that NVML sees.
        """
        self._look, self._request, self._knobs = look, request, knobs
        self._lines: tuple[Line, ...] = expected(_seen() if gpus is None else gpus)
        self.view = DoctorView(self._asked, document(self._lines))
        self._drawing_s = 0.0
        """CPU seconds spent on drawing the figures again: rare and expensive, so it does not count for the period."""
        self.failure = ""
        """Reason why the view stopped, in one sentence; empty while it works."""
        self.cpu_s = 0.0
        """CPU seconds spent on refreshing, on any thread."""
        self._layers: dict[str, Layer] = {}
        self._note: Callable[[str], None] | None = None
        """Adds a note to the followed run, while it goes on."""
        self._cleared: set[str] = set()
        self._said = ""
        self._sent: dict[str, Any] = {}
        self._memory = Memory()
        self._seq = 0
        self._started_s = float("inf")
        self._pushing = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    # ---- for the run --------------------------------------------------------------------------------------------

    def show(self) -> None:
        """Displays the panel with the state before the run."""
        self._sent = self._state()
        self.view.state = dict(self._sent)
        display(self.view)

    def follow(self, feed: Feed, role: str = "run") -> None:
        """Makes the panel draw another run.

        Args:
            feed: source of the run's steps and readings.
            role: `run` and `baseline` clear all lines; a `candidate` is drawn over the baseline.
        """
        name = describe(getattr(feed, "settings", {}))
        with self._pushing:
            layer = "trial" if role == "candidate" else "base"
            if layer == "base":
                self._layers.pop("trial", None)
                self._cleared.add("trial")
            self._layers[layer] = Layer(feed, formatting.clean(name, 60))
            self._cleared.add(layer)
            self._note = getattr(feed, "note", None)

    def begin(self) -> None:
        """Prepares for a run that begins; a view that failed before is tried again."""
        self.failure = ""
        self._started_s, self.view.greeted = time.monotonic(), None

    def start(self) -> None:
        """Starts the refresher for a run that begins, if it is not running."""
        if self._thread is not None:
            return
        self.begin()
        self._stopping.clear()
        # A message names the cell that it belongs to. ipykernel 7.0 looks that up in the thread's context, which a new
        # thread lacks, and then sends nothing.
        inside = contextvars.copy_context()
        self._thread = threading.Thread(
            target=inside.run, args=(self._refresh,), name="gpu_doctor-refresher", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stops the refresher."""
        thread, self._thread = self._thread, None
        self._stopping.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(5.0)

    def close(self) -> None:
        """Removes the panel from page and kernel for good."""
        self.stop()
        with self._pushing:
            self.view.close()
            self._layers, self._note = {}, None

    def push(self, whole: bool = False) -> None:
        """Refreshes the page once, on any thread. Never raises.

        Args:
            whole: True to send the whole state, after waiting for a refresh in progress. If False, a refresh in
                progress replaces this one.
        """
        if self.failure or not self._pushing.acquire(blocking=whole):
            return
        begin = time.thread_time()
        try:
            self._push(whole=whole)
        except Exception as error:
            self._fail(error)
        finally:
            self.cpu_s += time.thread_time() - begin
            self._pushing.release()

    def beat(self) -> None:
        """Refreshes the page on the run's own thread, if the panel shows the run.

        A trial that a cell started without the panel is not shown.
        """
        if self._thread is not None:
            self.push()

    def last(self, shown: PanelInput | None = None) -> None:
        """Stores the final state and all rows in traits, for a page that is loaded later. Never raises.

        Args:
            shown: state to show; None for the current state.
        """
        if self.failure:
            self._show_failure("idle")
            return
        begin = time.thread_time()
        with self._pushing:
            try:
                self._push(shown)
                self._note = None  # it refers to the recorder, which holds the memory of all rows
                head, data = self._rows(everything=True)
                with self.view.hold_sync():
                    self.view.state = dict(self._sent)
                    self.view.rows = {"seq": self._seq, "head": head, "data": data}
            except Exception as error:
                self._fail(error)
        self.cpu_s += time.thread_time() - begin

    # ---- messages to the page -----------------------------------------------------------------------------------

    def _refresh(self) -> None:
        while not self._stopping.is_set():
            begin = self.cpu_s - self._drawing_s
            self.push()
            usual = self.cpu_s - self._drawing_s - begin
            self._stopping.wait(max(PERIOD_S, min(usual / OWN_SHARE, LATEST * PERIOD_S)))

    def _push(self, shown: PanelInput | None = None, whole: bool = False) -> None:
        """Sends one message with the changes, or with the whole state. The caller holds the lock."""
        for layer in self._layers.values():
            layer.read()
        self._draw_lines()
        head, data = self._rows(whole)
        now = self._state(shown)
        changed = {
            key: value for key, value in now.items() if whole or key not in self._sent or self._sent[key] != value
        }
        self._sent = now
        self._send(changed, whole, head, data)
        if whole:
            self.view.send_state("figure")  # the page may have lost it as well

    def _send(self, state: dict[str, Any], whole: bool, head: dict[str, Any], data: bytes) -> None:
        """Sends the next message (`contract.Whole` or `contract.News`), with the points in its buffer."""
        self._seq += 1
        kind = "state" if whole else "news"
        self.view.send({"seq": self._seq, "kind": kind, "state": state, "rows": head}, buffers=[data])

    def _draw_lines(self) -> None:
        """Draws the figures again when a metric is read for the first time."""
        known = {line.key: line for line in self._lines}
        found = {key: line for layer in self._layers.values() for key, line in layer.lines.items()}
        if found.keys() <= known.keys():
            return
        begin = time.thread_time()
        self._lines = in_order({**found, **known}.values())
        self.view.figure = document(self._lines)
        self._drawing_s += time.thread_time() - begin

    def _rows(self, everything: bool) -> tuple[dict[str, Any], bytes]:
        """Returns the points to send and their description.

        Args:
            everything: True for all points, False for those that the page lacks.

        Returns:
            `contract.Points` as plain data, and a buffer with each line's x and then its y as float32.
        """
        lines: list[tuple[str, str, int, bool]] = []
        parts = []
        for name, layer in self._layers.items():
            for key in layer.lines:
                whole, x, y = layer.tails[key].take(everything)
                if len(x) or whole:
                    lines.append((name, key, len(x), whole))
                    parts += [x, y]
        cleared, self._cleared = sorted(self._cleared), set()
        base = self._layers.get("base")
        marks = base.marks if base is not None else Marks()
        head = Points(
            clear=("base", "trial") if everything else tuple(cleared),
            lines=tuple(lines),
            names={name: layer.name for name, layer in self._layers.items()},
            end=max((layer.elapsed_s for layer in self._layers.values()), default=0.0),
            tops={plot: self._top(plot) for plot in PLOTS[1:]},
            epochs=marks.epochs,
            evaluations=marks.evaluations,
        )
        return as_json(head), np.concatenate(parts).astype("<f4").tobytes() if parts else b""

    def _top(self, plot: str) -> float | None:
        tops = [top for layer in self._layers.values() if (top := layer.top(plot)) is not None]
        return max(tops, default=None)

    def _state(self, shown: PanelInput | None = None) -> dict[str, Any]:
        shown = shown or self._look()
        return state(
            replace(shown, message=self._said or shown.message, stop_live=shown.stop_live and self._clicks_work()),
            self._knobs,
            self._memory,
        )

    def _clicks_work(self) -> bool:
        """Returns True if a click reaches the kernel while the cell runs; assumed until GREETING_S have passed."""
        view = self.view
        heard = time.monotonic() - self._started_s < GREETING_S if view.greeted is None else view.greeted
        return view.clicks_live and heard

    def _fail(self, error: Exception) -> None:
        self.failure = f"The live view stopped ({formatting.raised(error)}); the run is not affected."
        if self._note is not None:
            self._note(self.failure)
        self._show_failure(self._sent.get("status", ""))

    def _show_failure(self, status: str) -> None:
        """Sends a last message to the page, if it is still connected: the failure, and the status of the run."""
        if not self._sent:
            return
        head = {**self._sent.get("header", {}), "status": STATUS.get(status, status)}
        self._sent |= {"message": self.failure, "status": status, "busy": status in BUSY, "header": head}
        with contextlib.suppress(Exception):
            self.view.state = dict(self._sent)
            self._send(dict(self._sent), True, as_json(NO_POINTS), b"")

    # ---- messages from the page ---------------------------------------------------------------------------------

    def _asked(self, content: Any) -> None:
        """Handles a message of the page, on any thread. Never raises."""
        try:
            request = checked_request(content, self._knobs)
            self._said = ""
            if request["ask"] == "state":
                self.push(whole=True)
                if self.failure:
                    self._show_failure(self._sent.get("status", ""))
            else:
                self._request(request)
        except Exception as error:
            self._said = str(error)
            if self._thread is None:
                self.push()


def prepare() -> None:
    """Makes and caches the figures that the first panel on this machine will show."""
    document(expected(_seen()))


def _seen() -> tuple[int, ...]:
    """Returns the indices of the GPUs that NVML sees; empty if NVML does not work."""
    try:
        return tuple(device.index for device in probe.devices())
    except Exception:
        return ()
