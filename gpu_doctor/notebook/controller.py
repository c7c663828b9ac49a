"""Controls one `%%gpudoctor` cell: its run, its live panel, its static result, and its later trials.

The order matters. The panel is displayed before the first step. The static result is a separate output that stays in
the saved notebook. The cell's exception is raised last, so that nobody misses the diagnosis of a failed run.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from gpu_doctor import formatting, report
from gpu_doctor.capture import Recorder, running
from gpu_doctor.diagnosis import Diagnosis
from gpu_doctor.notebook.answer import Answer
from gpu_doctor.notebook.cell_runner import Cell
from gpu_doctor.notebook.details import Details, sentences
from gpu_doctor.notebook.live_verdict import LiveVerdict
from gpu_doctor.notebook.screen import Screen, plainly
from gpu_doctor.recording import Recording, Setup
from gpu_doctor.report.panel import PanelInput, Progress, Status
from gpu_doctor.trials import Case, knobs
from gpu_doctor.trials.knobs import Refused

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from gpu_doctor.notebook.actions import Actions
    from gpu_doctor.notebook.live_view import Dashboard


class Controller:
    """Controls a cell: runs its case and shows it on the cell's screen."""

    def __init__(self, shell: InteractiveShell, line: str, body: str, options: argparse.Namespace) -> None:
        """Compiles the cell without running it.

        Raises:
            SyntaxError: The cell has one, as IPython would raise it.
        """
        self._shell, self._options = shell, options
        self._cell = Cell(shell, line, body)
        self._knobs = knobs.KNOBS
        how: dict[str, Any] = {"execute": self._cell.run, "quietly": Cell.quietly, **_budget(options)}
        how["changed"] = lambda text: Cell.of(shell, text).run
        self.case = Case(self._cell.source, shell.user_ns, name=options.name, **how)
        self.case.on_begin, self.case.nvtx = self._on_begin, options.nvtx
        self.message = ""
        self.stopping = False
        """True after Stop was pressed. It also stops a request that is just starting and has not begun its run yet."""
        self.status: Status = "starting"
        self._recorder: Recorder | None = None
        self._verdict = LiveVerdict()
        self._screen = Screen(shell, self._withdraw)
        self._actions: Actions | None = None
        self.details = Details(self.case.fix, lambda: sentences(self.case))

    # ---- the run of the cell ------------------------------------------------------------------------------------

    def run(self) -> None:
        """Runs the cell, shows and saves its result, and raises the cell's exception."""
        __tracebackhide__ = True
        if running() is not None:
            # A cell inside a recorded cell runs unchanged: the recording in progress covers it.
            self._cell.run(self._shell.user_ns)
            return
        self._open_panel()
        error = self.attempt(dict(self._options.settings), self._options.steps, self._options.seconds)
        unsaved = self._save()
        if unsaved and error is not None:
            sys.stderr.write(unsaved + "\n")  # only printed, because the cell's exception is raised
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback holds this frame: the cycle would keep the loop's memory alive
        if unsaved:
            raise UsageError(unsaved)

    def attempt(
        self, settings: dict[str, Any], steps: int | None = None, seconds: float | None = None
    ) -> BaseException | None:
        """Runs the whole cell under some settings, shown live and as a result.

        Args:
            settings: settings of the run.
            steps: number of steps after which the run ends; None for no limit.
            seconds: time after which the run ends, in seconds; None for no limit.

        Returns:
            The exception that the cell raised, or None.

        Raises:
            UsageError: A setting cannot be applied.
        """
        __tracebackhide__ = True
        self.status, self.message = "recording", ""
        error: BaseException | None = None
        try:
            try:
                self._screen.act(lambda panel: panel.start())
                self.case.run(settings, steps=steps, seconds=seconds)
            except Refused as refusal:
                raise UsageError(str(refusal)) from None
            except BaseException as raised:
                error = raised
            finally:
                self.settle()
            return error
        finally:
            del error

    def settle(self) -> None:
        """Ends a run or trial: sends the final state to the panel and the result to its output."""
        self.status = "idle"
        self._recorder = None
        self._screen.end()
        try:
            self.show_result()
        except Exception as error:  # a failing output must not hide the cell's exception
            sys.stderr.write(f"{report.LABELS.product}: the result could not be shown ({error}).\n")

    def _save(self) -> str:
        """Saves the recording if the user requested it; returns the reason if that failed, else ''."""
        if not self._options.save or not self.case.recordings:
            return ""
        try:
            self.case.recordings[-1].save(self._options.save)
        except OSError as error:
            return (
                f"The recording could not be saved: {error}. It is still in memory: "
                "save it elsewhere with gpu_doctor.last_case().recordings[-1].save(PATH)."
            )
        return ""

    def busy(self, status: Status) -> None:
        """Starts the panel's refresher, because a trial or a treatment begins."""
        self.status = status
        self._screen.act(lambda panel: panel.start())

    def redraw(self) -> None:
        """Draws the panel once, now."""
        self._screen.act(lambda panel: panel.push())

    # ---- the panel's content ------------------------------------------------------------------------------------

    def _open_panel(self) -> None:
        if not self._options.no_view:
            self._screen.open(self._dashboard)

    def _dashboard(self) -> Dashboard:
        from gpu_doctor.notebook.actions import Actions
        from gpu_doctor.notebook.live_view import Dashboard

        self._actions = Actions(self)
        return Dashboard(self.look, self._actions.take, self._knobs)

    def _withdraw(self) -> None:
        """Withdraws a waiting request, because the panel is being closed; the case stays."""
        if self._actions is not None:
            self._actions.withdraw()

    def _on_begin(self, recorder: Recorder, role: str) -> None:
        """Makes the panel follow a run, or a side of a trial, that begins."""
        if role == "run":
            self.details.before = None
            self._verdict = LiveVerdict()
        self._recorder = recorder  # last: from here on the refresher judges it
        if self.stopping:
            self.case.stop()
        if role != "probe":  # a probe measures memory only and is not drawn
            self._screen.act(lambda panel: _follow(panel, recorder, role))

    def look(self) -> PanelInput:
        """Returns the current state that the panel shows; called on the refresher's thread."""
        recorder, case = self._recorder, self.case
        live = (
            self._verdict.on(recorder.step_count, recorder.so_far)
            if recorder is not None and self.status == "recording"
            else None
        )
        newest = case.recordings[-1] if case.recordings else None
        setup = recorder.setup() if recorder is not None else newest.setup if newest is not None else Setup()
        turned = recorder.settings if recorder is not None else newest.settings if newest is not None else {}
        found = case.found if self.status != "recording" else None
        diagnosis = live if self.status == "recording" else case.diagnosis
        vitals = diagnosis.vitals if diagnosis is not None else None
        return PanelInput(
            status=self.status,
            name=self._options.name,
            setup=found or setup,
            turned=turned if found is None else {},
            diagnosis=diagnosis,
            recordings=tuple(case.recordings),
            effects=tuple(case.effects),
            settings=dict(recorder.settings) if recorder is not None else {},
            progress=self._progress(recorder),
            elapsed_s=recorder.elapsed_s()
            if recorder is not None
            else newest.duration_s
            if newest is not None
            else 0.0,
            step_count=recorder.step_count if recorder is not None else (vitals.steps if vitals is not None else 0),
            samples_per_s=vitals.samples_per_s if vitals is not None else None,
            source=case.source,
            notes=tuple(recorder.notes) if recorder is not None else newest.notes if newest is not None else (),
            message=self.message,
            trials=tuple(case.trials),
            plan=case.plans[-1] if case.plans else None,
            sweep=case.sweeping or (case.sweeps[-1] if case.sweeps else None),
            largest=case.largest,
            look=case.looked,
            job=case.job,
            fixes=self.details.fixes,
            asked=self.details.asked,
            before=self.details.before,
            trial_steps=case.trial_steps,
            trial_seconds=case.trial_seconds,
            price=case.price,
            stop_live=self._screen.receives_stop,
        )

    def _progress(self, recorder: Recorder | None) -> Progress | None:
        if self.case.sweeping is not None:
            decided, every = self.case.sweeping.decided, len(self.case.sweeping.effects)
            text = self.case.progress or ("Ray is ending" if decided == every else "Ray is starting")
            return Progress(decided, every, None, text, what="")
        if recorder is None or not self.case.progress:
            return None
        left_s = None if recorder.deadline_ns is None else max(recorder.deadline_ns - recorder.clock(), 0) * 1e-9
        return Progress(recorder.step_count, recorder.max_steps or 0, left_s, self.case.progress)

    def show_result(self) -> None:
        """Shows the static result in a separate output, which is replaced when a trial adds a row."""
        case = self.case
        newest: Recording | None = case.recordings[-1] if case.recordings else case.baseline
        if newest is None:
            return
        try:
            shown = self._reported(newest, case.diagnosis)
        except Exception as error:  # a failing report must not hide the cell's exception
            shown = plainly(f"The report failed ({formatting.raised(error)}); the run is not affected.")
        self._screen.show_result(shown)

    def _reported(self, newest: Recording, diagnosis: Diagnosis | None) -> Answer:
        if diagnosis is None:  # the diagnosis failed: the run's last note says why
            return plainly(newest.notes[-1] if newest.notes else "There is no diagnosis of this run.")
        notes = tuple(note for note in (self.message, self._screen.lost) if note)
        reported = report.Reported.of(self.case, diagnosis, notes)
        return Answer(report.text(reported), report.html(reported))


def _follow(panel: Dashboard, recorder: Recorder, role: str) -> None:
    recorder.cost.add_thread(_since(lambda: panel.cpu_s))
    panel.follow(recorder, role)
    if "google.colab" in sys.modules:  # on Colab only the main thread's messages reach the page at once
        recorder.listeners.on_beat(panel.beat)


def _budget(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the options of the cell's line that concern trials and the price, without those not given."""
    options_given = {name: getattr(options, name, None) for name in ("trial_steps", "trial_seconds", "price")}
    return {name: value for name, value in options_given.items() if value is not None}


def _since(read: Any) -> Any:
    """Returns a function that reads a counter relative to its value now."""
    begin = read()
    return lambda: read() - begin
