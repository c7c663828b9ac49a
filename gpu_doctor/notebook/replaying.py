"""Plays a recording in the panel of a cell: the panel gets the recording's rows and readings in recorded time.

The cell waits until the replay ends, as the cell of the run did, and draws the panel on its own thread, because there
is no loop that drawing could slow down. Stop and an interrupt jump to the end; the interrupt is raised after that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from gpu_doctor import formatting, report
from gpu_doctor.cell import Fix
from gpu_doctor.diagnosis import Diagnosis, diagnose
from gpu_doctor.notebook.answer import Answer
from gpu_doctor.notebook.details import Details
from gpu_doctor.notebook.live_verdict import LiveVerdict
from gpu_doctor.notebook.screen import Screen
from gpu_doctor.recording import Recording, Replay, Settings
from gpu_doctor.report.panel import PanelInput, Status
from gpu_doctor.trials import knobs
from gpu_doctor.trials.fix import fix

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from gpu_doctor.notebook.live_view import Dashboard

PERIOD_S: Final = 0.25
"""Time between two refreshes in seconds, half that of a live run, because there is no loop to slow down."""
NO_LOOP: Final = "A replay has no loop to rerun: to try something, run your cell under %%gpudoctor."
IN_PROPORTION: Final = (
    "Until the replay ends, figures that the recording has only for the whole run (fetches, calls, copies) are scaled "
    "to the time played so far."
)


class Replaying:
    """Plays a recording and shows it on the cell's screen."""

    def __init__(
        self,
        shell: InteractiveShell,
        recording: Recording,
        speed: float,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        """Prepares a replay without showing anything.

        Args:
            shell: shell of the notebook.
            recording: recording to play.
            speed: recorded seconds per second, above 0.
            clock: returns the time in seconds.
            wait: waits for a number of seconds; None to wait that long or until Stop.
        """
        self._recording, self._speed, self._clock = recording, speed, clock
        self._stopped = threading.Event()
        self._wait = wait or self._stopped.wait
        self._feed = Replay(recording, 0.0)
        self._verdict = LiveVerdict()
        self._screen = Screen(shell)
        self._details = Details(self._fixed)
        self._whole: Diagnosis | None = None
        """Diagnosis of the whole recording; None until the replay ends."""
        self._status: Status = "starting"
        self._message = ""

    def run(self) -> None:
        """Plays the recording to its end or until Stop, then shows its whole result."""
        self._screen.open(self._dashboard)
        try:
            self._play()
        finally:
            self._settle()

    def _play(self) -> None:
        self._status = "replaying"
        self._screen.act(self._follow)
        begin = self._clock()
        while (panel := self._screen.panel) is not None and not panel.failure and not self._stopped.is_set():
            moment_s = (self._clock() - begin) * self._speed
            if moment_s >= self._recording.duration_s:
                return
            self._feed.until_s = moment_s
            self._screen.act(lambda panel: panel.push())
            self._wait(PERIOD_S)

    def _settle(self) -> None:
        """Jumps to the end of the recording and shows the final panel and the result."""
        at_s, self._feed.until_s = self._moment_s(), None
        if self._stopped.is_set():
            whole = formatting.clock(self._recording.duration_s)
            self._message = f"Stopped at {formatting.clock(at_s)} of {whole}: this is the whole recording."
        self._whole = diagnose(self._recording)
        self._status = "idle"
        self._screen.end()
        self._screen.show_result(self._reported(self._whole))

    # ---- the panel's content ------------------------------------------------------------------------------------

    def _dashboard(self) -> Dashboard:
        from gpu_doctor.notebook.live_view import Dashboard

        gpus = tuple(device.index for device in self._recording.setup.devices)
        return Dashboard(self.look, self.take, knobs.KNOBS, gpus=gpus)

    def _follow(self, panel: Dashboard) -> None:
        panel.begin()
        panel.follow(self._feed)

    def _moment_s(self) -> float:
        """Returns the recorded time played so far, in seconds."""
        return self._recording.duration_s if self._feed.until_s is None else self._feed.until_s

    def look(self) -> PanelInput:
        """Returns the current state that the panel shows."""
        run, over = self._recording, self._whole is not None
        so_far = self._feed.so_far()
        diagnosis = self._whole or self._verdict.on(int(so_far.steps.count.sum()), lambda: so_far)
        vitals = diagnosis.vitals if diagnosis is not None else None
        return PanelInput(
            status=self._status,
            name=run.name,
            setup=run.setup,
            turned=run.settings,
            diagnosis=diagnosis,
            recordings=(run,) if over else (),
            settings=run.settings,
            elapsed_s=self._moment_s(),
            step_count=vitals.steps if vitals is not None else 0,
            samples_per_s=vitals.samples_per_s if vitals is not None else None,
            source=run.source,
            notes=run.notes if over else (IN_PROPORTION,),
            message=self._message,
            fixes=self._details.fixes,
            asked=self._details.asked,
            before=(),
            replay_speed=self._speed,
            no_trials=NO_LOOP,
            stop_live=self._screen.receives_stop,
        )

    def _reported(self, diagnosis: Diagnosis) -> Answer:
        notes = tuple(note for note in (self._message, self._screen.lost) if note)
        run = self._recording
        reported = report.Reported(diagnosis, (run,), title=run.name, notes=notes)
        return Answer(report.text(reported), report.html(reported))

    # ---- the page's requests ------------------------------------------------------------------------------------

    def take(self, request: dict[str, Any]) -> None:
        """Carries out a checked request of the page; called on any thread."""
        kind = request["ask"]
        if kind == "stop":
            self._stopped.set()
            return
        if kind == "fix":
            self._details.fix(request["settings"])
        elif kind == "forecast":
            self._details.request_forecast(request["settings"])
        else:
            self._message = NO_LOOP
        self._screen.act(lambda panel: panel.push())

    def _fixed(self, settings: Settings) -> Fix:
        """Returns the change to the recorded cell's text, found without the objects that its names referred to."""
        run = self._recording

        def code(name: str) -> str:
            return knobs.known(name).code(settings[name], run.setup)

        return fix([run.source], settings, run.setup, code)
