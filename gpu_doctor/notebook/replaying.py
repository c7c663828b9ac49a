"""A recording played in the panel of its cell: fed with the recording's own rows and readings, in recorded time.

The cell that asks for it waits until the end, as the cell of the run did, and draws the panel itself: there is no loop
that a thread would have to leave alone. Stop and an interrupt go to the end; an interrupt is raised after that.
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
"""Between two pictures: twice as many as of a run, whose loop they would keep."""
NO_LOOP: Final = "A replay has no loop to rerun: to try something, run your cell under %%gpudoctor."
IN_PROPORTION: Final = (
    "Until the end of the replay, what the recording adds up over the whole run (fetches, calls, copies) stands in "
    "proportion to the time that has gone by."
)


class Replaying:
    """A recording, and what is on the screen of it."""

    def __init__(
        self,
        shell: InteractiveShell,
        recording: Recording,
        speed: float,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        """Nothing is shown yet.

        Args:
            shell: of the notebook.
            recording: what is played.
            speed: recorded seconds in one second, above 0.
            clock: seconds.
            wait: waits for so many of them; None = as long, or until Stop.
        """
        self._recording, self._speed, self._clock = recording, speed, clock
        self._stopped = threading.Event()
        self._wait = wait or self._stopped.wait
        self._feed = Replay(recording, 0.0)
        self._verdict = LiveVerdict()
        self._screen = Screen(shell)
        self._details = Details(self._fixed)
        self._whole: Diagnosis | None = None
        """That of the whole recording, once it is over."""
        self._status: Status = "starting"
        self._message = ""

    def run(self) -> None:
        """Plays it to its end, or until it is stopped; then shows the whole of it."""
        self._screen.open(self._made)
        try:
            self._play()
        finally:
            self._settle()

    def _play(self) -> None:
        self._status = "replaying"
        self._screen.act(self._followed)
        begin = self._clock()
        while (panel := self._screen.panel) is not None and not panel.failure and not self._stopped.is_set():
            moment_s = (self._clock() - begin) * self._speed
            if moment_s >= self._recording.duration_s:
                return
            self._feed.until_s = moment_s
            self._screen.act(lambda panel: panel.push())
            self._wait(PERIOD_S)

    def _settle(self) -> None:
        """The end of the recording, whether it was played to there or not."""
        at_s, self._feed.until_s = self._moment_s(), None
        if self._stopped.is_set():
            whole = formatting.clock(self._recording.duration_s)
            self._message = f"Stopped at {formatting.clock(at_s)} of {whole}: this is the whole recording."
        self._whole = diagnose(self._recording)
        self._status = "idle"
        self._screen.end()
        self._screen.show_result(self._reported(self._whole))

    # ---- what is seen -------------------------------------------------------------------------------------------

    def _made(self) -> Dashboard:
        from gpu_doctor.notebook.live_view import Dashboard

        gpus = tuple(one.index for one in self._recording.setup.devices)
        return Dashboard(self.look, self.take, knobs.KNOBS, gpus=gpus)

    def _followed(self, panel: Dashboard) -> None:
        panel.begin()
        panel.follow(self._feed)

    def _moment_s(self) -> float:
        """Recorded seconds that have been played."""
        return self._recording.duration_s if self._feed.until_s is None else self._feed.until_s

    def look(self) -> PanelInput:
        """All that the panel shows, as it stands."""
        run, over = self._recording, self._whole is not None
        seen = self._feed.so_far()
        diagnosis = self._whole or self._verdict.on(int(seen.steps.count.sum()), lambda: seen)
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
            stop_live=self._screen.hears_stop,
        )

    def _reported(self, diagnosis: Diagnosis) -> Answer:
        notes = tuple(note for note in (self._message, self._screen.lost) if note)
        run = self._recording
        told = report.Reported(diagnosis, (run,), title=run.name, notes=notes)
        return Answer(report.text(told), report.html(told))

    # ---- what is asked ------------------------------------------------------------------------------------------

    def take(self, request: dict[str, Any]) -> None:
        """A checked request of the page, on any thread."""
        asked = request["ask"]
        if asked == "stop":
            self._stopped.set()
            return
        if asked == "fix":
            self._details.fix(request["settings"])
        elif asked == "forecast":
            self._details.foretell(request["settings"])
        else:
            self._message = NO_LOOP
        self._screen.act(lambda panel: panel.push())

    def _fixed(self, settings: Settings) -> Fix:
        """The change of the recorded cell; what its names meant is not known."""
        run = self._recording

        def code(name: str) -> str:
            return knobs.known(name).code(settings[name], run.setup)

        return fix([run.source], settings, run.setup, code)
