"""The interface of a probe, which reads one source of data about the machine during one run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeAlias

from gpu_doctor.recording import Metric

Reading: TypeAlias = tuple[Metric, float]
"""A metric and its current value, in the metric's unit."""

Form: TypeAlias = tuple[str, str, str]
"""Unit, label and group of a metric."""


def readings(forms: Mapping[str, Form], values: Mapping[str, float | None], device: int | None = None) -> list[Reading]:
    """Returns the readings of some metrics; a value of None is unknown and left out.

    Args:
        forms: Unit, label and group of each metric, by name.
        values: Values by the metrics' names.
        device: Index of the GPU; None for the host.
    """
    return [(Metric(name, *forms[name], device), float(value)) for name, value in values.items() if value is not None]


Reader: TypeAlias = Callable[[], list[Reading]]
"""Function that reads the source once. A value that cannot be read is absent, never 0. If the function raises, the
whole probe is switched off."""


@dataclass
class ProbeScope:
    """Functions that the probes of one run share."""

    note: Callable[[str], None]
    """Adds a sentence to the recording's notes."""
    clock: Callable[[], float] = time.perf_counter
    """Returns the host's time in s, for rates."""


Probe: TypeAlias = Callable[[ProbeScope], AbstractContextManager[Reader | None]]
"""The function `opened` of a probe's module: a context manager that yields its reader, or None if there is no source.

The poller's thread enters it, reads and leaves it. It must import nothing there: a worker process that is forked during
an import would find the module's import lock locked forever.
"""
