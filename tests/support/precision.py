"""The precision of float32 products as it was, after every test of a module that imports it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpu_doctor.trials.matmul_precision import newer_places, precisions, put_back

newer = pytest.mark.skipif(not list(newer_places()), reason="this torch has no fp32_precision")


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """The precision as it was, under its older names and its newer."""
    before = precisions()
    for name, place in newer_places():
        if name.endswith("matmul"):
            place.fp32_precision = "none"  # as torch begins: earlier tests may have set an older name
    yield
    put_back(before)
    assert precisions() == before
