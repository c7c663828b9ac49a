"""Records the code inside a context: taps on the training thread, probes on the poller's, one run at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Final

from gpu_doctor.capture.lines.sampler import LineSampler
from gpu_doctor.capture.poller import Poller
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import listening
from gpu_doctor.machine import PROBES, cpu_name, driver_version, os_cores, physical_cores, usable_cores
from gpu_doctor.recording import here


class Busy(RuntimeError):
    """Raised if a run is already being recorded in this process; the message says what that means."""


_running: Final[list[Recorder]] = []
_inherited: Final[list[Recorder]] = []
"""Recorders of the parent process, if this one was forked: their taps are still on, as loader workers need some."""


def _forked() -> None:
    """Retires the recorders in a forked child: its work is no part of the run, and does not end with it."""
    for recorder in _running:
        recorder.retire()
    _inherited.extend(_running)
    _running.clear()


if hasattr(os, "register_at_fork"):  # Windows has none
    os.register_at_fork(after_in_child=_forked)


def running() -> Recorder | None:
    """Returns the recorder of the run that is going on in this process, None if there is none."""
    return _running[-1] if _running else None


@contextmanager
def recorded(recorder: Recorder, namespace: MutableMapping[str, Any] | None) -> Iterator[None]:
    """Switches taps and probes on for the duration of the context, and everything off afterwards, whatever happened.

    Raises:
        Busy: if a run is already being recorded in this process.
    """
    if _running:
        raise Busy("gpu_doctor is already recording a run in this process: that recording includes this code too.")
    while _inherited:  # a rank that the run has forked records itself
        _inherited.pop().take_off()
    sampler = LineSampler(recorder)
    recorder.parts.update(lines=sampler.costs, looks=lambda: sampler.samples, around=sampler.around)
    recorder.parts["peak_bytes"] = lambda: _peak_bytes(recorder)
    poller = Poller(PROBES, recorder.readings.add, note=recorder.note, sampler=sampler.sample)
    recorder.cost.add_thread(lambda: poller.cpu_s)
    try:
        _running.append(recorder)
        recorder.facts.update(usable_cores=usable_cores(), os_cores=os_cores(), driver_version=driver_version())
        recorder.facts.update(physical_cores=physical_cores(), cpu=cpu_name(), host=here())
        with listening(recorder, namespace):
            try:
                poller.start()
                yield
            finally:
                recorder.over.set()
                try:
                    poller.stop()
                finally:
                    sampler.close()
    finally:
        if recorder in _running:  # it is missing if an interrupt came first
            _running.remove(recorder)


def _peak_bytes(recorder: Recorder) -> float:
    """Returns the peak memory in bytes: the allocator's own peak on a GPU, the largest RSS that was read on a CPU."""
    device = recorder.setup().gpu_index
    name = "process_rss_bytes" if device is None else "torch_peak_bytes"
    wanted = (
        series for series in recorder.readings.series() if (series.metric.name, series.metric.device) == (name, device)
    )
    values = [value for series in wanted for value in series.values.tolist()]
    return max(values, default=float("nan"))
