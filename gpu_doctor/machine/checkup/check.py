"""Checks the machine before a run: driver, torch build, GPUs and their other users, /dev/shm, cores, start method.

Clocks, link, power, threads and memory show up in a loop, so the rules judge them, with their cost, after a run.

`check()` gathers facts and judges them; every judgement is a pure function of `facts.Facts`.
"""

from __future__ import annotations

from gpu_doctor.machine.checkup.facts import Facts
from gpu_doctor.machine.checkup.gather import gathered
from gpu_doctor.machine.checkup.gpu import gpu_lines
from gpu_doctor.machine.checkup.host import host_lines
from gpu_doctor.machine.checkup.result import CheckLine, Checkup

__all__ = ["CheckLine", "Checkup", "Facts", "check", "judged"]


def check() -> Checkup:
    """Checks this machine. It changes nothing, does not initialise CUDA, and never raises if something is missing.

    Example:
        >>> import gpu_doctor
        >>> print(gpu_doctor.check())
        Check-up of this machine: ...
    """
    return judged(gathered())


def judged(facts: Facts) -> Checkup:
    """Returns the check-up of a machine with these facts."""
    return Checkup((*gpu_lines(facts), *host_lines(facts)))
