"""One `%%gpudoctor` cell: its run, its live panel, its static result, and what follows.

The order matters: the panel is displayed before the first step; the static result is an output of its own that stays in
the saved notebook; what the cell raised is raised last, so that nobody misses the diagnosis of a run that failed.
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
    """A cell, its case, and what is on the screen of it."""

    def __init__(self, shell: InteractiveShell, line: str, body: str, options: argparse.Namespace) -> None:
        """Compiles the cell; nothing runs yet.

        Raises:
            SyntaxError: as IPython would for the cell.
        """
        self._shell, self._options = shell, options
        self._cell = Cell(shell, line, body)
        self._knobs = knobs.KNOBS
        how: dict[str, Any] = {"execute": self._cell.run, "quietly": Cell.quietly, **_budget(options)}
        how["changed"] = lambda text: Cell.of(shell, text).run
        self.case = Case(self._cell.source, shell.user_ns, name=options.name, **how)
        self.case.on_begin, self.case.nvtx = self._began, options.nvtx
        self.message = ""
        self.stopping = False
        """Stop was asked for: of a request that had not yet forgotten the Stop of the one before, too."""
        self.status: Status = "starting"
        self._recorder: Recorder | None = None
        self._verdict = LiveVerdict()
        self._screen = Screen(shell, self._withdraw)
        self._actions: Actions | None = None
        self.details = Details(self.case.fix, lambda: sentences(self.case))

    # ---- the run of the cell ------------------------------------------------------------------------------------

    def run(self) -> None:
        """Runs the cell; shows, saves, and raises what the cell raised."""
        __tracebackhide__ = True
        if running() is not None:
            # A cell inside a recorded cell: it runs as it is, and the recording that is going on covers it.
            self._cell.run(self._shell.user_ns)
            return
        self._open_panel()
        error = self.attempt(dict(self._options.settings), self._options.steps, self._options.seconds)
        unsaved = self._save()
        if unsaved and error is not None:
            sys.stderr.write(unsaved + "\n")  # what the cell raised passes on, so this is only said
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback holds this frame: a circle would keep the loop's memory
        if unsaved:
            raise UsageError(unsaved)

    def attempt(
        self, settings: dict[str, Any], steps: int | None = None, seconds: float | None = None
    ) -> BaseException | None:
        """A whole run under settings, shown live and as a result; returns what the cell raised, None if nothing.

        Raises:
            UsageError: if a setting cannot be honoured.
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
        """The run or trial is over: final state to the panel, result to its output."""
        self.status = "idle"
        self._recorder = None
        self._screen.end()
        try:
            self.show_result()
        except Exception as error:  # a page that cannot be written to must not hide what the cell raised
            sys.stderr.write(f"{report.LABELS.product}: the result could not be shown ({error}).\n")

    def _save(self) -> str:
        """Saves the recording if that was asked for; why it could not be saved, else empty."""
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
        """A trial or a treatment begins: the panel shows its progress."""
        self.status = status
        self._screen.act(lambda panel: panel.start())

    def redraw(self) -> None:
        """Draws the panel once, now."""
        self._screen.act(lambda panel: panel.push())

    # ---- what is seen -------------------------------------------------------------------------------------------

    def _open_panel(self) -> None:
        if not self._options.no_view:
            self._screen.open(self._made)

    def _made(self) -> Dashboard:
        from gpu_doctor.notebook.actions import Actions
        from gpu_doctor.notebook.live_view import Dashboard

        self._actions = Actions(self)
        return Dashboard(self.look, self._actions.take, self._knobs)

    def _withdraw(self) -> None:
        """The panel is closed, and a request that still waits with it; the case stays."""
        if self._actions is not None:
            self._actions.withdraw()

    def _began(self, recorder: Recorder, role: str) -> None:
        """A run, or a side of a trial, begins: the panel follows it."""
        if role == "run":
            self.details.before = None
            self._verdict = LiveVerdict()
        self._recorder = recorder  # last: from here on the refresher judges it
        if self.stopping:
            self.case.stop()
        if role != "probe":  # its memory is all that it is there for: no line to draw
            self._screen.act(lambda panel: _followed(panel, recorder, role))

    def look(self) -> PanelInput:
        """All that the panel shows, as it stands; called on the refresher's thread."""
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
            stop_live=self._screen.hears_stop,
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
        """The static result, in an output of its own that is replaced when a trial adds a row."""
        case = self.case
        newest: Recording | None = case.recordings[-1] if case.recordings else case.baseline
        if newest is None:
            return
        try:
            shown = self._reported(newest, case.diagnosis)
        except Exception as error:  # a report that fails must not hide what the cell raised
            shown = plainly(f"The report failed ({formatting.raised(error)}); the run is not affected.")
        self._screen.show_result(shown)

    def _reported(self, newest: Recording, diagnosis: Diagnosis | None) -> Answer:
        if diagnosis is None:  # it failed: why is the run's last note
            return plainly(newest.notes[-1] if newest.notes else "There is no diagnosis of this run.")
        notes = tuple(note for note in (self.message, self._screen.lost) if note)
        told = report.Reported.of(self.case, diagnosis, notes)
        return Answer(report.text(told), report.html(told))


def _followed(panel: Dashboard, recorder: Recorder, role: str) -> None:
    recorder.cost.add_thread(_since(lambda: panel.cpu_s))
    panel.follow(recorder, role)
    if "google.colab" in sys.modules:  # there only messages of the main thread reach the page at once
        recorder.listeners.hear_beats(panel.beat)


def _budget(options: argparse.Namespace) -> dict[str, Any]:
    """What the cell's line says of its trials and of the price."""
    given = {name: getattr(options, name, None) for name in ("trial_steps", "trial_seconds", "price")}
    return {name: value for name, value in given.items() if value is not None}


def _since(read: Any) -> Any:
    """A counter from now on."""
    begin = read()
    return lambda: read() - begin
