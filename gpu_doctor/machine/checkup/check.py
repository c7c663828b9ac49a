"""The machine before any run: driver, torch build, GPUs, link and clocks, /dev/shm, cores, start method, threads, RAM.

`check()` gathers facts and judges them; every judgement is a pure function over `facts.Facts`.
"""

from __future__ import annotations

from gpu_doctor.checkup.environment_lines import environment_lines
from gpu_doctor.checkup.facts import Facts
from gpu_doctor.checkup.gather import gathered
from gpu_doctor.checkup.gpu_lines import gpu_lines
from gpu_doctor.checkup.host_lines import host_lines
from gpu_doctor.checkup.result import CheckLine, Checkup

__all__ = ["CheckLine", "Checkup", "Facts", "check", "judged"]


def check() -> Checkup:
    """Judges this machine; reads only, initialises no CUDA context and never raises for what is missing."""
    return judged(gathered())


def judged(facts: Facts) -> Checkup:
    """The check-up of a machine with these facts."""
    return Checkup((*gpu_lines(facts), *host_lines(facts), *environment_lines(facts)))
