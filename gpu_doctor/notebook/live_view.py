"""Brings the news of a run to the page twice a second, from a thread of its own; a failing view touches nothing.

Every message has a number (`seq`), one more than the one before. A page that finds a gap, as one does that was loaded
while something runs, asks for the state, and is sent a message that holds all of it.
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
import numpy.ma  # np.percentile loads it at its first call: better now than while the cell runs
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
"""Between two refreshes."""
OWN_SHARE: Final = 0.01
"""Part of one core that refreshing may take: after one that took t, the next comes t / 0.01 later at the earliest."""
NO_POINTS: Final = Points((), (), {}, 0.0, {}, (), ())
GREETING_S: Final = 3.0
"""A page whose messages come while the cell runs is heard so soon after the start; VS Code's and nbclassic's wait."""
LATEST: Final = 8
"""But at most so many periods later: a look that was dear, as the first is, must leave time for the verdict that is
promised within 5 s."""


class Dashboard:
    """One panel in the page: what it looks at, what it sends, what it is asked."""

    def __init__(
        self,
        look: Callable[[], PanelInput],
        request: Callable[[dict[str, Any]], None],
        knobs: KnobTable,
        *,
        gpus: Sequence[int] | None = None,
    ) -> None:
        """Makes the widget; nothing is displayed yet.

        Args:
            look: gives the case as it stands; called on the refresher's thread.
            request: takes a checked request of the page; may be called on any thread, must only post.
            knobs: what the panel lets a person turn.
            gpus: indices of the GPUs to draw lines for at once; None = those that NVML sees.
        """
        self._look, self._request, self._knobs = look, request, knobs
        self._lines: tuple[Line, ...] = expected(_seen() if gpus is None else gpus)
        self.view = DoctorView(self._asked, document(self._lines))
        self._drawing_s = 0.0  # drawing the figures anew is rare and dear: it must not slow the refresher down
        self.failure = ""
        """Why the view stopped, in one sentence; empty while it works."""
        self.cpu_s = 0.0
        """CPU seconds that refreshing has cost, on whatever thread."""
        self._layers: dict[str, Layer] = {}
        self._note: Callable[[str], None] | None = None
        """Adds a note to the run that is followed, while it goes on."""
        self._cleared: set[str] = set()
        self._said = ""
        self._sent: dict[str, Any] = {}
        self._memory = Memory()
        self._seq = 0
        self._started_s = float("inf")
        self._pushing = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    # ---- what a run does with it --------------------------------------------------------------------------------

    def show(self) -> None:
        """Displays the panel, with what is known before the run."""
        self._sent = self._state()
        self.view.state = dict(self._sent)
        display(self.view)

    def follow(self, feed: Feed, role: str = "run") -> None:
        """Follows another run.

        Args:
            feed: of the run that begins.
            role: `run` and `baseline` clear all lines; a `candidate` is laid over the baseline's.
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
        """Something begins to run; a view that failed before gets another chance."""
        self.failure = ""
        self._started_s, self.view.greeted = time.monotonic(), None

    def start(self) -> None:
        """Something begins to run: starts the refresher if it is not running."""
        if self._thread is not None:
            return
        self.begin()
        self._stopping.clear()
        # A message names the cell that it belongs to. ipykernel 7.0 looks for that in the thread's context, which a new
        # thread has not, and sends nothing from there.
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
        """Takes the panel out of page and kernel, for good."""
        self.stop()
        with self._pushing:
            self.view.close()
            self._layers, self._note = {}, None

    def push(self, whole: bool = False) -> None:
        """One refresh now, on any thread. Never raises.

        Args:
            whole: all that the page should have, after another refresh that is under way; else that one is enough.
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
        """One refresh on the run's own thread, in a run that the panel shows: not in a trial that a cell asked for."""
        if self._thread is not None:
            self.push()

    def last(self, shown: PanelInput | None = None) -> None:
        """Writes the final state and all rows down in traits, for a page that is loaded later. Never raises.

        Args:
            shown: what to show; None = look once more.
        """
        if self.failure:
            self._tell_failure("idle")
            return
        begin = time.thread_time()
        with self._pushing:
            try:
                self._push(shown)
                self._note = None  # it holds the recorder, and with it the memory of all rows
                head, data = self._rows(everything=True)
                with self.view.hold_sync():
                    self.view.state = dict(self._sent)
                    self.view.rows = {"seq": self._seq, "head": head, "data": data}
            except Exception as error:
                self._fail(error)
        self.cpu_s += time.thread_time() - begin

    # ---- to the page --------------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        while not self._stopping.is_set():
            begin = self.cpu_s - self._drawing_s
            self.push()
            usual = self.cpu_s - self._drawing_s - begin
            self._stopping.wait(max(PERIOD_S, min(usual / OWN_SHARE, LATEST * PERIOD_S)))

    def _push(self, shown: PanelInput | None = None, whole: bool = False) -> None:
        """One message with all that changed, or with all that there is; the lock is held."""
        for layer in self._layers.values():
            layer.read()
        self._draw_lines()
        head, data = self._rows(whole)
        now = self._state(shown)
        changed = {key: one for key, one in now.items() if whole or key not in self._sent or self._sent[key] != one}
        self._sent = now
        self._send(changed, whole, head, data)
        if whole:
            self.view.send_state("figure")  # it may have been lost as well

    def _send(self, state: dict[str, Any], whole: bool, head: dict[str, Any], data: bytes) -> None:
        """The next message (`contract.Whole` or `contract.News`), with the points in its buffer."""
        self._seq += 1
        kind = "state" if whole else "news"
        self.view.send({"seq": self._seq, "kind": kind, "state": state, "rows": head}, buffers=[data])

    def _draw_lines(self) -> None:
        """Has the figures drawn anew when a quantity is read for the first time."""
        known = {line.key: line for line in self._lines}
        found = {key: line for layer in self._layers.values() for key, line in layer.lines.items()}
        if found.keys() <= known.keys():
            return
        begin = time.thread_time()
        self._lines = in_order({**found, **known}.values())
        self.view.figure = document(self._lines)
        self._drawing_s += time.thread_time() - begin

    def _rows(self, everything: bool) -> tuple[dict[str, Any], bytes]:
        """What to do with the points, and the points: for every line its x, then its y, as float32."""
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
            replace(shown, message=self._said or shown.message, stop_live=shown.stop_live and self._clicks_live()),
            self._knobs,
            self._memory,
        )

    def _clicks_live(self) -> bool:
        """A click is heard while the cell runs; taken for granted until the page had time to be heard."""
        view = self.view
        heard = time.monotonic() - self._started_s < GREETING_S if view.greeted is None else view.greeted
        return view.clicks_live and heard

    def _fail(self, error: Exception) -> None:
        self.failure = f"The live view stopped ({formatting.raised(error)}); the run is not affected."
        if self._note is not None:
            self._note(self.failure)
        self._tell_failure(self._sent.get("status", ""))

    def _tell_failure(self, status: str) -> None:
        """A last message to the page, if it still hears: why the panel moves no more, and how the run stands."""
        if not self._sent:
            return
        head = {**self._sent.get("header", {}), "status": STATUS.get(status, status)}
        self._sent |= {"message": self.failure, "status": status, "busy": status in BUSY, "header": head}
        with contextlib.suppress(Exception):
            self.view.state = dict(self._sent)
            self._send(dict(self._sent), True, as_json(NO_POINTS), b"")

    # ---- from the page ------------------------------------------------------------------------------------------

    def _asked(self, content: Any) -> None:
        """A message of the page, on whatever thread it comes. Never raises."""
        try:
            request = checked_request(content, self._knobs)
            self._said = ""
            if request["ask"] == "state":
                self.push(whole=True)
                if self.failure:
                    self._tell_failure(self._sent.get("status", ""))
            else:
                self._request(request)
        except Exception as error:
            self._said = str(error)
            if self._thread is None:
                self.push()


def prepare() -> None:
    """Makes the figures that the first panel of this machine will show; they are remembered."""
    document(expected(_seen()))


def _seen() -> tuple[int, ...]:
    """Indices of the GPUs that NVML sees; empty where it cannot be asked."""
    try:
        return tuple(device.index for device in probe.devices())
    except Exception:
        return ()
