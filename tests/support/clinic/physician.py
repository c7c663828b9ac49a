"""Examines a patient: the bare cell and the bare cured cell by the clock, then one run under the doctor, then compares.

How bare cells are timed stands in `bare`.
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
from typing import Any

import psutil

import gpu_doctor
from gpu_doctor.diagnosis import Diagnosis
from gpu_doctor.recording import SettingValue
from tests.support.clinic import room
from tests.support.clinic.bare import LONGER, ROUNDS, as_it_was, known, longer, step_s
from tests.support.clinic.cell import Cell, Patient, Recorded
from tests.support.clinic.room import Room

HEALTHY_BAR = 0.10
"""On a healthy patient no finding may cost so much (the bar of the benchmark)."""


@dataclass
class Visit:
    """What one examination found: the truth, what the doctor said, and whether that was right."""

    name: str
    family: str
    klass: str
    told_class: str = ""
    wanted: tuple[str, ...] = ()
    healthy: bool = False
    findings: list[tuple[str, float]] = field(default_factory=list)
    """Cause and cost_share in the order of the diagnosis; hints stand last, with 0."""
    settings: dict[str, SettingValue] = field(default_factory=dict)
    """What was prescribed first, where a knob does it."""
    by_hand_workers: int | None = None
    """Workers that were advised in words only."""
    by_hand_readers: int | None = None
    """Threads that were advised to fill a queue."""
    predicted: float | None = None
    predicted_low: float | None = None
    predicted_high: float | None = None
    real: float | None = None
    """Bare sick over bare cured, seconds a step; None where nothing is to be cured."""
    real_all: list[float] = field(default_factory=list)
    trial: float | None = None
    """What a trial of the prescribed settings measured; None where none was asked for, or none was judged."""
    sick_ms: float | None = None
    """Bare, a step."""
    cured_ms: float | None = None
    watched_ms: float | None = None
    """Under the doctor, a step, as its vitals say."""
    shares: dict[str, float] = field(default_factory=dict)
    """Where the doctor saw the wall-clock go."""
    others_pct: float = 0.0
    """CPU time that other programs took meanwhile, of all cores."""
    broken: list[str] = field(default_factory=list)
    """Laws of this patient that were broken: rules that must not be named, too many workers advised."""
    error: str = ""
    seconds: float = 0.0
    absent: str = ""
    """Why the machine that this patient needs could not be set up here; then nothing was examined."""

    @property
    def class_right(self) -> bool:
        """Whether the class is the known one."""
        return self.told_class == self.klass

    @property
    def rule_right(self) -> bool:
        """Whether one of the right rules comes first; for a healthy patient, whether none is dear."""
        if self.broken:
            return False
        if self.healthy:
            return all(cost < HEALTHY_BAR for _, cost in self.findings)
        return bool(self.findings) and self.findings[0][0] in self.wanted

    @property
    def error_share(self) -> float | None:
        """How far the predicted gain lies from the real one, relative to it; None where none was predicted."""
        if self.predicted is None or self.real is None or self.healthy:
            return None
        return self.predicted / self.real - 1.0

    @property
    def trial_error_share(self) -> float | None:
        """How far the predicted gain lies from that of the trial, relative to it."""
        if self.error_share is None or self.predicted is None or self.trial is None:
            return None
        return self.predicted / self.trial - 1.0

    @property
    def told(self) -> tuple[float, float] | None:
        """The ends between which the gain was foretold to lie; None where none was, or it is not known."""
        if self.error_share is None or self.predicted_low is None or self.predicted_high is None:
            return None
        return self.predicted_low, self.predicted_high

    def plain(self) -> dict[str, Any]:
        """As JSON takes it."""
        judged = ("class_right", "rule_right", "error_share", "trial_error_share")
        return asdict(self) | {name: getattr(self, name) for name in judged}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Visit:
        """A visit from what `plain` gave and JSON read back."""
        return cls(**{one.name: plain[one.name] for one in fields(cls) if one.name in plain})


def examine(patient: Patient, family: str, rounds: int = ROUNDS, trial: bool = False) -> Visit:
    """One patient, all of the examination; with a trial of what is prescribed if asked for."""
    began, cpu = time.perf_counter(), _cpu()
    visit = Visit(patient.name, family, patient.klass, wanted=patient.top, healthy=patient.healthy)
    try:
        if isinstance(patient, Recorded):
            _judge_recording(visit, patient)
        else:
            if patient.room is not None:
                room.enter(patient.room)
            (_examine_ending if patient.dies else _examine_cell)(visit, patient, rounds)
            if trial and visit.settings and visit.predicted is not None:
                visit.trial = tried(*patient.notebook(), visit.settings)
    except room.NotHere as why:
        visit.absent = str(why)
    except Exception as error:
        visit.error = f"{type(error).__name__}: {error}"
    visit.seconds = time.perf_counter() - began
    if isinstance(patient, Cell):  # a recording is played in virtual time: who else computes does not matter
        visit.others_pct = _others_pct(cpu, visit.seconds)
    return visit


def _examine_cell(visit: Visit, cell: Cell, rounds: int) -> None:
    before, sick = cell.notebook()
    if cell.healthy or not (cell.cured or cell.cure):  # nothing to compare with: watched first, as in a fresh kernel,
        _told(
            visit, cell, watched(before, sick, earlier=cell.earlier)
        )  # whose heap does not yet hold what an earlier run left free
        sick_s = [step_s(before, sick, cell.tail, cell.few)]
    else:
        sick_s = [step_s(before, sick, cell.tail, cell.few)]
        _told(visit, cell, watched(before, sick, earlier=cell.earlier))
    if cell.healthy or not (cell.cured or cell.cure or visit.settings):
        visit.sick_ms = 1e3 * sick_s[0]
        return
    better = _as_prescribed(visit, cell)
    cured_s = [step_s(*better, cell.tail, cell.few)]
    if cured_s[0] * LONGER < 2 * sick_s[0]:  # so fast that starting its workers would be all of a run as short
        better = (longer(better[0]), better[1])
        cured_s = [step_s(*better, cell.tail, cell.few)]
    gains = [sick_s[0] / cured_s[0]]
    while not known(gains, rounds):
        sick_s.append(step_s(before, sick, cell.tail, cell.few))
        cured_s.append(step_s(*better, cell.tail, cell.few))
        gains.append(sick_s[-1] / cured_s[-1])
    more = _more_samples(visit, cell)
    visit.real_all = [more * one for one in gains]
    visit.real = statistics.median(visit.real_all)
    visit.sick_ms, visit.cured_ms = 1e3 * statistics.median(sick_s), 1e3 * statistics.median(cured_s)


def _more_samples(visit: Visit, cell: Cell) -> float:
    """Samples of a step of the cured loop over those of the sick one: the truth is samples a second."""
    size = (visit.settings or cell.cure).get("batch_size")
    if size is None:
        return 1.0
    written = {int(one) for one in re.findall(r"batch_size=(\d+)", cell.before + cell.sick)}
    if len(written) != 1:
        raise ValueError(f"how many samples are in a batch as written? {sorted(written)}")
    return float(size) / written.pop()


def _examine_ending(visit: Visit, cell: Cell, rounds: int) -> None:
    """A cell that does not run to its end: repaired by hand, by itself, and under the doctor.

    The repaired one comes first: a run that failed leaves its batches and workers behind for a while.
    """
    said = ends(*cell.notebook(cell.cured), cell.room)
    if said:
        raise RuntimeError(f"the bare cured cell failed: {said}")
    before, sick = cell.notebook()
    if not ends(before, sick, cell.room):
        raise RuntimeError("the bare sick cell ran to its end")
    _told(visit, cell, watched(before, sick, ended=True, where=cell.room))


def ends(before: str, cell: str, where: Room | None) -> str:
    """What the bare cell raises; empty if it runs to its end."""
    with as_it_was():
        names = room.namespace(where)
        try:
            exec(compile(before, "<above>", "exec"), names)
            exec(compile(cell, "<cell>", "exec"), names)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        finally:
            names.clear()  # the batches of a failed run would lie in the next one's shared memory
    return ""


def _as_prescribed(visit: Visit, cell: Cell) -> tuple[str, str]:
    """The cell as the user would change it: the settings that were prescribed, else the cure that is known.

    A number of workers that was advised by hand (a stream that must be sharded first) is written into the known cure,
    one of threads that fill a queue where a line `READERS = ...` says how many those are.
    """
    if visit.settings:
        return cell.notebook(settings=visit.settings)
    if not cell.cured:
        return cell.notebook(settings=cell.cure)
    loads = "DataLoader(" in cell.cured
    if visit.by_hand_workers and not loads:
        visit.predicted = visit.predicted_low = visit.predicted_high = None  # of another cure than the known one
    by_hand = {"num_workers": int(visit.by_hand_workers)} if visit.by_hand_workers and loads else {}
    before, cured = cell.notebook(cell.cured, by_hand)
    if visit.by_hand_readers:
        before = re.sub(r"^READERS = \d+", f"READERS = {visit.by_hand_readers}", before, flags=re.M)
    return before, cured


def _judge_recording(visit: Visit, patient: Recorded) -> None:
    recording = patient.play()
    _told(visit, patient, gpu_doctor.diagnose(recording))
    if patient.cured is None:
        return
    seconds = [float(one.steps.wall_s[10:].mean()) for one in (recording, patient.cured())]
    visit.sick_ms, visit.cured_ms = 1e3 * seconds[0], 1e3 * seconds[1]
    visit.real = patient.samples * seconds[0] / seconds[1]


def _told(visit: Visit, patient: Patient, diagnosis: Diagnosis) -> None:
    """Writes down what the doctor says, and where it breaks a law of this patient."""
    visit.told_class = diagnosis.bottleneck
    told = (*diagnosis.findings, *diagnosis.hints)
    visit.findings = [(one.rule, round(one.cost_share or 0.0, 3)) for one in told]
    vitals = diagnosis.vitals
    visit.watched_ms = None if vitals.step_wall_s is None else 1e3 * vitals.step_wall_s
    named = ("data_wait", "transfer", "forward", "backward", "optimizer", "sync", "evaluation", "other", "loss", "edge")
    shares = {name: getattr(vitals, f"{name}_share") for name in named}
    visit.shares = {name: round(share, 3) for name, share in shares.items() if share}
    for finding in told:
        if finding.rule in patient.never and ((finding.cost_share or 0.0) >= HEALTHY_BAR or finding.risk):
            visit.broken.append(f"named {finding.rule}")
        for one in finding.prescriptions:
            workers = one.settings.get("num_workers")
            if workers is not None and patient.most_workers is not None and int(workers) > patient.most_workers:
                visit.broken.append(f"{finding.rule} advised {workers} workers")
    if not told or not told[0].prescriptions:
        return
    first = told[0].prescriptions[0]
    visit.settings = dict(first.settings)
    said = re.search(r"num_workers=(\d+)", first.code)
    visit.by_hand_workers = int(said[1]) if said and not first.settings else None
    readers = re.search(r"range\((\d+) \* readers\)", first.code)
    visit.by_hand_readers = int(readers[1]) if readers else None
    visit.predicted = first.predicted_speedup
    visit.predicted_low, visit.predicted_high = first.predicted_low, first.predicted_high


def watched(
    before: str,
    cell: str,
    settings: Mapping[str, SettingValue] | None = None,
    *,
    ended: bool = False,
    where: Room | None = None,
    earlier: Mapping[str, SettingValue] | None = None,
) -> Diagnosis:
    """One run under the doctor, as `%%gpudoctor` makes it; one that is expected to raise, if it `ended`.

    A run under the settings of `earlier` goes before it.
    """
    with as_it_was():
        namespace = room.namespace(where)
        _run_above(before, namespace)
        case = gpu_doctor.case(cell, namespace)
        if earlier:
            case.run(earlier)
        with suppress(Exception) if ended else nullcontext():
            case.run(settings)
        return gpu_doctor.diagnose(case.recordings[-1], case.recordings[:-1])


def tried(before: str, cell: str, settings: Mapping[str, SettingValue]) -> float | None:
    """The gain that a trial of the settings measures, in a notebook of its own; None where it came to no result."""
    with as_it_was():
        namespace = room.namespace(None)
        _run_above(before, namespace)
        return gpu_doctor.case(cell, namespace).trial(settings).speedup


def _run_above(before: str, namespace: dict[str, Any]) -> None:
    """Runs the cells above; their text can be read, as that of a notebook's cells can."""
    linecache.cache["<above>"] = (len(before), None, before.splitlines(keepends=True), "<above>")
    exec(compile(before, "<above>", "exec"), namespace)


def _cpu() -> tuple[float, float]:
    """CPU seconds of the whole machine, taken ones (steal) too, and of this process and the children it waited for."""
    machine = psutil.cpu_times()
    busy = sum(machine[:3]) + sum(getattr(machine, name, 0.0) for name in ("irq", "softirq", "steal"))
    own = sum(
        one.ru_utime + one.ru_stime
        for one in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )
    return busy, own


def _others_pct(before: tuple[float, float], seconds: float) -> float:
    now = _cpu()
    others = (now[0] - before[0]) - (now[1] - before[1])
    return max(0.0, 100.0 * others / max(seconds * (psutil.cpu_count() or 1), 1e-9))


GLANCE_STEPS = 12


def glance(patient: Patient, family: str) -> Visit:
    """Only sees that the sick and the cured cell run, a few steps of each; nothing is judged.

    But a cell that ends early is examined: that takes no longer, and hangs on no timing.
    """
    if isinstance(patient, Cell) and patient.dies:
        return examine(patient, family)
    began = time.perf_counter()
    visit = Visit(patient.name, family, patient.klass, patient.klass, patient.top, healthy=patient.healthy)
    try:
        if isinstance(patient, Recorded):
            _judge_recording(visit, patient)
        else:
            for before, cell in {patient.notebook(), patient.notebook(patient.cured, patient.cure)}:
                namespace: dict[str, Any] = {"__name__": "__main__"}
                with as_it_was():
                    _run_above(before, namespace)
                    made = gpu_doctor.case(cell, namespace).run(steps=GLANCE_STEPS)
                if not len(made.steps):
                    visit.error = "no step was seen"
    except Exception as error:
        visit.error = f"{type(error).__name__}: {error}"
    visit.seconds = time.perf_counter() - began
    return visit
