"""Unit tests are instant: under a second of CPU time each, in this process and in its children."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Final

import pytest

from tests.support.quiet import cpu_s

MOST_CPU_S: Final = float(os.environ.get("GPU_DOCTOR_UNIT_CPU_S", "5"))
"""Where a test fails. The same test takes two to three times the CPU seconds beside busy neighbours (shared caches, a
sibling thread on the core), so the limit is far above the second that is aimed at: what it finds belongs elsewhere on
any machine. Other versions (noxfile.py) may take longer still."""


@pytest.fixture(autouse=True, scope="session")
def torch_is_set_up() -> None:
    """What torch imports at its import and at a first step takes seconds, which are no single test's own.

    One thread each: the tests share the cores, and threads that wait for each other spin, which counts as CPU time.
    """
    with contextlib.suppress(ImportError):  # the diagnosis half is tested without it, too
        import torch

        torch.set_num_threads(1)
        weight = torch.zeros(1, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        weight.sum().backward()
        optimizer.step()


@pytest.fixture(autouse=True)
def instant() -> Iterator[None]:
    """Fails a test that computes for longer: it belongs under `integration/`, or is to be made smaller."""
    begin = cpu_s()
    yield
    took = cpu_s() - begin
    if took > MOST_CPU_S:
        pytest.fail(
            f"{took:.1f} s of CPU time; a unit test takes under one, and fails at {MOST_CPU_S:.0f}.", pytrace=False
        )
