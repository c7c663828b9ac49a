"""The machine before any run: driver, torch build, GPUs and who else uses them, /dev/shm, cores, start method.

What a loop shows of its machine (clocks, link, power, threads, memory) the rules say, priced, when it has run.

`check()` gathers facts and judges them; every judgement is a pure function over `facts.Facts`.
"""

from __future__ import annotations

from gpu_doctor.machine.checkup.facts import Facts
from gpu_doctor.machine.checkup.gather import gathered
from gpu_doctor.machine.checkup.gpu import gpu_lines
from gpu_doctor.machine.checkup.host import host_lines
from gpu_doctor.machine.checkup.result import CheckLine, Checkup

__all__ = ["CheckLine", "Checkup", "Facts", "check", "judged"]


def check() -> Checkup:
    """Judges this machine; reads only, initialises no CUDA and never raises for what is missing.

    Example:
        >>> import gpu_doctor
        >>> print(gpu_doctor.check())
        Check-up of this machine: ...
    """
    return judged(gathered())


def judged(facts: Facts) -> Checkup:
    """The check-up of a machine with these facts."""
    return Checkup((*gpu_lines(facts), *host_lines(facts)))
