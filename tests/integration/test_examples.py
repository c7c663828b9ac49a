"""The example of every public name runs, and says what it says."""

from __future__ import annotations

from typing import Final

import pytest

import gpu_doctor
from tests.support.examples import example_of, failures

ELSEWHERE: Final = ("RayExecutor", "load_ipython_extension", "unload_ipython_extension", "__version__")
"""A cluster takes seconds to start: `tests/external/test_ray.py`. The others are IPython's to call: `tests/kernel`."""


@pytest.mark.parametrize("name", sorted({*gpu_doctor.__all__}.difference(ELSEWHERE)))
def test_the_example_of_a_public_name_runs(name: str) -> None:
    assert example_of(name).examples, "this name has no example"
    assert failures(name) == ""
