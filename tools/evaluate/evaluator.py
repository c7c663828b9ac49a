"""Evaluates a program: times the bare and the bare cured one, runs it once under gpu_doctor, and compares.

How bare programs are timed stands in `timing`.
"""

from __future__ import annotations

import linecache
import re
import resource
import statistics
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

import psutil

import gpu_doctor
from gpu_doctor.diagnosis import Diagnosis
from gpu_doctor.recording import SettingValue
from tools.evaluate import limits
from tools.evaluate.limits import Limits
from tools.evaluate.program import Program, Recorded
from tools.evaluate.timing import LONGER, ROUNDS, as_it_was, bare_s, known, longer

HEALTHY_BAR: Final = 0.10
"""The share of the time from which a finding on a healthy program is a false alarm."""
SICK: Final = 1.15
"""The gain from which an unseen program counts as sick, and from which a finding on a healthy one is right: the bar of
findings, and what two runs differ by."""


@dataclass
class Evaluation:
    """Evaluation of one program: the truth, what gpu_doctor reported, and whether that was right."""

    name: str
    group: str
    known_class: str
    """The right class; where several are right, with `|` between them."""
    found_class: str = ""
    causes: tuple[str, ...] = ()
    """The causes of which one must come first."""
    healthy: bool = False
    unseen: bool = False
    findings: list[tuple[str, float]] = field(default_factory=list)
    """The cause and `cost_share` of each finding in the order of the diagnosis; hints stand last, with 0."""
    settings: dict[str, SettingValue] = field(default_factory=dict)
    """The first prescription's settings, where a knob makes it."""
    manual_workers: int | None = None
    """The number of workers that was prescribed in words only."""
    manual_readers: int | None = None
    """The number of threads that were prescribed to fill a queue."""
    predicted: float | None = None
    predicted_low: float | None = None
    predicted_high: float | None = None
    real: float | None = None
    """The gain of the cure: bare sick over bare cured; None where nothing is to be cured."""
    real_all: list[float] = field(default_factory=list)
    trial: float | None = None
    """The gain that a trial of the prescribed settings measured; None if none was run, or none came to a result."""
    tried: dict[str, float | None] = field(default_factory=dict)
    """The gain of each finding's settings on an unseen healthy program, as a trial measured it."""
    sick_ms: float | None = None
    """The duration of a bare step; of the whole run where the whole is timed."""
    cured_ms: float | None = None
    """The same of the cured program."""
    watched_ms: float | None = None
    """The duration of a step under gpu_doctor, by its vitals."""
    shares: dict[str, float] = field(default_factory=dict)
    """The shares of the wall-clock, by gpu_doctor's vitals."""
    others_pct: float = 0.0
    """The CPU time that other programs took meanwhile, of all cores."""
    broken: list[str] = field(default_factory=list)
    """The parts of the truth that were broken: causes that must not be found, too many workers prescribed."""
    error: str = ""
    seconds: float = 0.0
    """The duration of the evaluation."""
    absent: str = ""
    """The reason why the program's limits cannot be set on this machine; then nothing was evaluated."""

    @classmethod
    def of(cls, program: Program | Recorded) -> Evaluation:
        """Makes the evaluation of a program that has not run yet."""
        unseen = isinstance(program, Program) and program.unseen
        classes = "|".join(program.classes)
        return cls(program.name, program.group, classes, "", program.causes, program.healthy, unseen)

    @property
    def class_right(self) -> bool:
        """True if the class is a right one."""
        return self.found_class in self.known_class.split("|")

    @property
    def cause_right(self) -> bool:
        """True if one of the right causes comes first; for a healthy program, if no finding is a false alarm."""
        if self.broken:
            return False
        if self.healthy:
            dear = [cause for cause, cost in self.findings if cost >= HEALTHY_BAR]
            return all((self.tried.get(cause) or 0.0) >= SICK for cause in dear)
        return bool(self.findings) and self.findings[0][0] in self.causes

    @property
    def judged(self) -> bool:
        """True if the program was evaluated, and is sick on this machine where only its author says so."""
        if self.error or self.absent:
            return False
        return not self.unseen or self.real is None or self.real >= SICK

    @property
    def error_share(self) -> float | None:
        """The error of the predicted gain, relative to the real one; None where none was predicted."""
        if self.predicted is None or self.real is None or self.healthy:
            return None
        return self.predicted / self.real - 1.0

    @property
    def trial_error_share(self) -> float | None:
        """The error of the predicted gain, relative to that of the trial."""
        if self.error_share is None or self.predicted is None or self.trial is None:
            return None
        return self.predicted / self.trial - 1.0

    @property
    def band(self) -> tuple[float, float] | None:
        """The ends between which the gain was predicted to lie; None where none was predicted or timed."""
        if self.error_share is None or self.predicted_low is None or self.predicted_high is None:
            return None
        return self.predicted_low, self.predicted_high

    def plain(self) -> dict[str, Any]:
        """Returns what JSON takes."""
        derived = ("class_right", "cause_right", "error_share", "trial_error_share")
        return asdict(self) | {name: getattr(self, name) for name in derived}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Evaluation:
        """Makes an evaluation from what `plain` returned and JSON read back."""
        return cls(**{part.name: plain[part.name] for part in fields(cls) if part.name in plain})


def evaluate(program: Program | Recorded, rounds: int = ROUNDS, trial: bool = False) -> Evaluation:
    """Evaluates one program.

    Args:
        program: The program.
        rounds: The fewest pairs of bare runs.
        trial: True to try what is prescribed, too.
    """
    began, cpu = time.perf_counter(), _cpu()
    found = Evaluation.of(program)
    try:
        if isinstance(program, Recorded):
            _judge_recording(found, program)
        else:
            if program.limits is not None:
                limits.enter(program.limits)
            (_evaluate_failing if program.fails else _evaluate_running)(found, program, rounds)
            if trial and found.settings and found.predicted is not None:
                found.trial = tried(*program.cells(), found.settings)
    except limits.Unavailable as reason:
        found.absent = str(reason)
    except (Exception, SystemExit) as error:
        found.error = f"{type(error).__name__}: {error}"
    found.seconds = time.perf_counter() - began
    if isinstance(program, Program):  # a recording is played in virtual time: who else computes does not matter
        found.others_pct = _others_pct(cpu, found.seconds)
    return found


def _evaluate_running(found: Evaluation, program: Program, rounds: int) -> None:
    above, cell = program.cells()
    if program.healthy or not program.curable:
        # Nothing to compare with: watched first, as in a fresh kernel, whose heap does not yet hold what an earlier run
        # left free.
        diagnosis = watched(above, cell, earlier=program.earlier)
        sick_s = [bare_s(above, cell, program.timed)]
    else:
        sick_s = [bare_s(above, cell, program.timed)]
        diagnosis = watched(above, cell, earlier=program.earlier)
    _report(found, program, diagnosis)
    if program.healthy or not (program.curable or found.settings):
        found.sick_ms = 1e3 * sick_s[0]
        if program.unseen:
            _try_findings(found, program, diagnosis)
        return
    better = _as_prescribed(found, program)
    cured_s = [bare_s(*better, program.timed)]
    if cured_s[0] * LONGER < 2 * sick_s[0] and program.timed != "whole":
        better = (longer(better[0]), better[1])  # so fast that starting its workers would be all of a run as short
        cured_s = [bare_s(*better, program.timed)]
    gains = [sick_s[0] / cured_s[0]]
    while not known(gains, rounds):
        sick_s.append(bare_s(above, cell, program.timed))
        cured_s.append(bare_s(*better, program.timed))
        gains.append(sick_s[-1] / cured_s[-1])
    more = _more_samples(found, program)
    found.real_all = [more * gain for gain in gains]
    found.real = statistics.median(found.real_all)
    found.sick_ms, found.cured_ms = 1e3 * statistics.median(sick_s), 1e3 * statistics.median(cured_s)


def _try_findings(found: Evaluation, program: Program, diagnosis: Diagnosis) -> None:
    """Tries what is found on an unseen healthy program.

    Its author may have chosen float32, and half precision still be twice as fast.
    """
    for finding in diagnosis.findings:
        if (finding.cost_share or 0.0) >= HEALTHY_BAR:
            settings = next((one.settings for one in finding.prescriptions if one.settings), None)
            found.tried[finding.rule] = tried(*program.cells(), settings) if settings else None


def _more_samples(found: Evaluation, program: Program) -> float:
    """Returns the samples of a cured step over those of a sick one: the gain is one of samples a second."""
    size = (found.settings or program.settings).get("batch_size")
    if size is None:
        return 1.0
    written = {int(number) for number in re.findall(r"batch_size=(\d+)", program.above + program.cell)}
    if len(written) != 1:
        raise ValueError(f"how many samples are in a batch as written? {sorted(written)}")
    return float(size) / written.pop()


def _evaluate_failing(found: Evaluation, program: Program, rounds: int) -> None:
    """Evaluates a program that does not run to its end: repaired by hand, by itself, and under gpu_doctor.

    The repaired one comes first: a run that failed leaves its batches and workers behind for a while.
    """
    reason = failure(*program.cells(cured=True), program.limits)
    if reason:
        raise RuntimeError(f"the bare cured cell failed: {reason}")
    above, cell = program.cells()
    if not failure(above, cell, program.limits):
        raise RuntimeError("the bare sick cell ran to its end")
    _report(found, program, watched(above, cell, failing=True, where=program.limits))


def failure(above: str, cell: str, where: Limits | None) -> str:
    """Runs the bare cells and returns what they raise; empty if they run to their end."""
    with as_it_was():
        names = limits.namespace(where)
        try:
            exec(compile(above, "<above>", "exec"), names)
            exec(compile(cell, "<cell>", "exec"), names)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        finally:
            names.clear()  # the batches of a failed run would lie in the next one's shared memory
    return ""


def _as_prescribed(found: Evaluation, program: Program) -> tuple[str, str]:
    """Returns the cells as a user would change them: with the prescribed settings, else with the known cure.

    A number of workers that was prescribed in words (a stream must be sharded first) is written into the known cure,
    and so is one of threads that fill a queue, where a line `READERS = ...` sets it.
    """
    if found.settings:
        return program.cells(found.settings)
    if program.cured is None:
        return program.cells(program.settings)
    loads = "DataLoader(" in program.cured[1]
    if found.manual_workers and not loads:
        found.predicted = found.predicted_low = found.predicted_high = None  # of another cure than the known one
    manual = {"num_workers": int(found.manual_workers)} if found.manual_workers and loads else {}
    above, cured = program.cells(manual, cured=True)
    if found.manual_readers:
        above = re.sub(r"^READERS = \d+", f"READERS = {found.manual_readers}", above, flags=re.M)
    return above, cured


def _judge_recording(found: Evaluation, program: Recorded) -> None:
    recording = program.play()
    _report(found, program, gpu_doctor.diagnose(recording))
    if program.cured is None:
        return
    seconds = [float(each.steps.wall_s[10:].mean()) for each in (recording, program.cured())]
    found.sick_ms, found.cured_ms = 1e3 * seconds[0], 1e3 * seconds[1]
    found.real = program.samples * seconds[0] / seconds[1]


def _report(found: Evaluation, program: Program | Recorded, diagnosis: Diagnosis) -> None:
    """Writes down what gpu_doctor reported, and where that breaks the truth about the program."""
    found.found_class = diagnosis.bottleneck
    reported = (*diagnosis.findings, *diagnosis.hints)
    found.findings = [(finding.rule, round(finding.cost_share or 0.0, 3)) for finding in reported]
    vitals = diagnosis.vitals
    found.watched_ms = None if vitals.step_wall_s is None else 1e3 * vitals.step_wall_s
    named = ("data_wait", "transfer", "forward", "backward", "optimizer", "sync", "evaluation", "other", "loss", "edge")
    shares = {name: getattr(vitals, f"{name}_share") for name in named}
    found.shares = {name: round(share, 3) for name, share in shares.items() if share}
    for finding in reported:
        if finding.rule in program.never and ((finding.cost_share or 0.0) >= HEALTHY_BAR or finding.risk):
            found.broken.append(f"found {finding.rule}")
        for prescription in finding.prescriptions:
            workers = prescription.settings.get("num_workers")
            if workers is not None and program.most_workers is not None and int(workers) > program.most_workers:
                found.broken.append(f"{finding.rule} prescribed {workers} workers")
    if not reported or not reported[0].prescriptions:
        return
    first = reported[0].prescriptions[0]
    found.settings = dict(first.settings)
    in_words = re.search(r"num_workers=(\d+)", first.code)
    found.manual_workers = int(in_words[1]) if in_words and not first.settings else None
    readers = re.search(r"range\((\d+) \* readers\)", first.code)
    found.manual_readers = int(readers[1]) if readers else None
    found.predicted = first.predicted_speedup
    found.predicted_low, found.predicted_high = first.predicted_low, first.predicted_high


def watched(
    above: str,
    cell: str,
    settings: Mapping[str, SettingValue] | None = None,
    *,
    failing: bool = False,
    where: Limits | None = None,
    earlier: Mapping[str, SettingValue] | None = None,
) -> Diagnosis:
    """Runs the cells once under gpu_doctor, as `%%gpudoctor` does.

    Args:
        above: The cells above.
        cell: The diagnosed cell.
        settings: The settings of the run.
        failing: True if the cell is expected to raise.
        where: The limits of the machine.
        earlier: The settings of a run that goes before it.
    """
    with as_it_was():
        namespace = limits.namespace(where)
        run_above(above, namespace)
        case = gpu_doctor.case(cell, namespace)
        if earlier:
            case.run(earlier)
        with suppress(Exception) if failing else nullcontext():
            case.run(settings)
        return gpu_doctor.diagnose(case.recordings[-1], case.recordings[:-1])


def tried(above: str, cell: str, settings: Mapping[str, SettingValue]) -> float | None:
    """Returns the gain of the settings in a trial, in a notebook of its own; None if it came to no result."""
    with as_it_was():
        namespace = limits.namespace(None)
        run_above(above, namespace)
        return gpu_doctor.case(cell, namespace).trial(settings).speedup


def run_above(above: str, namespace: dict[str, Any]) -> None:
    """Runs the cells above; their text can be read, as that of a notebook's cells can."""
    linecache.cache["<above>"] = (len(above), None, above.splitlines(keepends=True), "<above>")
    exec(compile(above, "<above>", "exec"), namespace)


def _cpu() -> tuple[float, float]:
    """Returns the CPU seconds of the whole machine, with stolen ones, and those of this process and its children."""
    machine = psutil.cpu_times()
    busy = sum(machine[:3]) + sum(getattr(machine, name, 0.0) for name in ("irq", "softirq", "steal"))
    usages = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return busy, sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _others_pct(before: tuple[float, float], seconds: float) -> float:
    now = _cpu()
    others = (now[0] - before[0]) - (now[1] - before[1])
    return max(0.0, 100.0 * others / max(seconds * (psutil.cpu_count() or 1), 1e-9))


GLANCE_STEPS: Final = 12


def glance(program: Program | Recorded) -> Evaluation:
    """Runs a few steps of the sick and of the cured program, and judges nothing.

    But one that fails is evaluated: that takes no longer, and does not depend on timing.
    """
    if isinstance(program, Program) and program.fails:
        return evaluate(program)
    began = time.perf_counter()
    found = Evaluation.of(program)
    found.found_class = program.classes[0]
    try:
        if isinstance(program, Recorded):
            _judge_recording(found, program)
        else:
            for above, cell in {program.cells(), program.cells(program.settings, cured=True)}:
                namespace: dict[str, Any] = {"__name__": "__main__"}
                with as_it_was():
                    run_above(above, namespace)
                    recording = gpu_doctor.case(cell, namespace).run(steps=GLANCE_STEPS)
                if not len(recording.steps):
                    found.error = "no step was recorded"
    except Exception as error:
        found.error = f"{type(error).__name__}: {error}"
    found.seconds = time.perf_counter() - began
    return found
