"""What property tests share: how many examples there are, and that hypothesis is set up before the first."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def examples(number: int) -> settings:
    """So many examples of each property, the same ones at every run; a unit test has a second of CPU time.

    For a search for errors `GPU_DOCTOR_EXAMPLES` says how many (some ten thousand), and with `GPU_DOCTOR_SEED` they are
    others at every run.
    """
    number = int(os.environ.get("GPU_DOCTOR_EXAMPLES", number))
    return settings(max_examples=number, deadline=None, derandomize="GPU_DOCTOR_SEED" not in os.environ, database=None)


@pytest.fixture(autouse=True, scope="module")
def hypothesis_is_set_up() -> None:
    """At its first example hypothesis reads all modules that are loaded, which is no single test's own time."""

    @settings(database=None, deadline=None, max_examples=1)
    @given(st.integers(0, 1))
    def example(number: int) -> None:
        assert number in (0, 1)

    example()
