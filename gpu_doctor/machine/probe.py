"""The form of a probe: a reader of one source of the machine, opened and read by the poller for one run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeAlias

from gpu_doctor.recording import Metric

Reading: TypeAlias = tuple[Metric, float]
"""A metric and its value now, in the metric's unit."""

Form: TypeAlias = tuple[str, str, str]
"""Unit, label and group of a metric."""


def readings(forms: Mapping[str, Form], values: Mapping[str, float | None], device: int | None = None) -> list[Reading]:
    """Values by the names of their metrics; what is None is not known, and absent."""
    return [(Metric(name, *forms[name], device), float(one)) for name, one in values.items() if one is not None]


Reader: TypeAlias = Callable[[], list[Reading]]
"""Reads the source once. What cannot be read is absent, never 0; raising takes the whole probe off."""


@dataclass
class ProbeScope:
    """What the probes of one run share."""

    note: Callable[[str], None]
    """One sentence for the footer."""
    clock: Callable[[], float] = time.perf_counter
    """Seconds of the host clock, for rates."""


Probe: TypeAlias = Callable[[ProbeScope], AbstractContextManager[Reader | None]]
"""The `opened` of a probe's module: yields its reader, or None where the machine has no such source.

It is entered, read and left on the poller's thread. It imports nothing there: a worker process that is forked while an
import goes on would find the module's import lock held forever.
"""
