"""Sentences that third-party programs brought to light: a verdict must agree with the anatomy that stands below it."""

from __future__ import annotations

import re

import pytest

from gpu_doctor.diagnosis import Diagnosis, diagnose
from tests.support.recordings import Loop, line


@pytest.mark.parametrize(
    ("loop", "named"),
    [
        (Loop(), "forward backward optimizer"),
        (Loop(evaluation=2.0), "forward backward optimizer evaluation"),
        (Loop(loss=2.0), "forward backward optimizer loss"),
        (Loop(loss=3.0, evaluation=2.0), "forward backward optimizer loss evaluation"),
        (Loop(evaluation=0.1, loss=0.1), "forward backward optimizer"),
        (Loop(backward=0.0, optimizer=0.0, setup={"optimizers": ()}), "forward"),
        (Loop(optimizer=0.0, setup={"optimizers": ()}), "forward backward"),
    ],
)
def test_what_counts_as_compute_is_what_is_named(loop: Loop, named: str) -> None:
    """MNIST with a test pass an epoch: 95 % were "forward, backward and optimizer", of which 20 % were its tests."""
    diagnosis = diagnose(loop.recording())
    assert diagnosis.bottleneck == "compute"
    first = diagnosis.verdict.partition(". ")[0]
    assert "Compute-bound: 100 %" in first
    phases = "forward|backward|optimizer|loss|evaluation"
    assert re.findall(phases, first) == named.split(), diagnosis.verdict


def unheard(backward: float, other: float, in_torch: float = 0.0) -> Diagnosis:
    """A loop on plain tensors, or a module with a `__call__` of its own: the forward lies in `other`."""
    looks = (line("h = x @ W", in_torch * 0.5, in_torch=True), line("print(h)", (1 - in_torch) * 0.5))
    loop = Loop(wait=0.0, forward=0.0, backward=backward, optimizer=0.5, other=other, lines=looks)
    return diagnose(loop.recording())


def test_a_forward_that_no_module_says_is_no_python() -> None:
    """A network of plain tensors, written out: 53 % were "Python between the phases"."""
    for diagnosis in (unheard(5.0, 5.5), unheard(2.0, 6.0, in_torch=0.9)):
        assert diagnosis.bottleneck == "compute"
        assert "Python" not in diagnosis.verdict


def test_far_more_than_the_backward_is_the_hosts() -> None:
    diagnosis = unheard(2.0, 9.0)
    assert diagnosis.bottleneck == "host"
    assert "what the loop computes outside any module" in diagnosis.verdict


def test_with_a_heard_forward_the_rest_is_the_hosts() -> None:
    loop = Loop(wait=0.0, other=30.0, lines=(line("h = x @ W", 0.6, in_torch=True),))
    assert diagnose(loop.recording()).bottleneck == "host"
