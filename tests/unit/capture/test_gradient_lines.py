"""Looks at a backward: whether the way there leads through a call that asks for one gradient after the other."""

from __future__ import annotations

import linecache
from collections.abc import Iterator

import pytest

from gpu_doctor.capture.lines.places import Place
from gpu_doctor.capture.lines.sampler import LineSampler, _Seen
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.recording import LineCost
from gpu_doctor.recording.steps import BACKWARD, FORWARD

STEP = """def penalty(scores, x):
    norms = []
    for i in range(len(x)):
        (grad,) = torch.autograd.grad(scores[i], x, create_graph=True)
        norms.append(grad[i].norm(2))
    return torch.stack(norms).mean()
for x in data:
    seen = penalty(net(x), x)
    loss = penalty(net(x), x)
    loss.backward()
"""
FILE = "<a penalty>"


@pytest.fixture
def sampler() -> Iterator[LineSampler]:
    """Of a run whose loop has such a penalty."""
    linecache.cache[FILE] = (len(STEP), None, STEP.splitlines(keepends=True), FILE)
    yield LineSampler(Recorder())
    del linecache.cache[FILE]


def looked(sampler: LineSampler, phase: int, *lines: int) -> LineCost:
    """What is told of a look at the first of the lines, reached through the others."""
    sampler.placed(phase, (_Seen(Place(FILE, lines[0], "penalty", True), tuple((FILE, one) for one in lines)), 1.0))
    return next(one for one in sampler.costs() if one.line == lines[0])


def test_one_samples_gradient_after_the_other(sampler: LineSampler) -> None:
    assert looked(sampler, BACKWARD, 4, 9).one_by_one == f"{FILE}:4"
    assert looked(sampler, BACKWARD, 10).one_by_one == ""


def test_of_a_backward_nothing_else_is_told(sampler: LineSampler) -> None:
    one = looked(sampler, BACKWARD, 4, 8)
    assert (one.beside, one.looped, one.computes, one.before_backward) == ("", False, False, False)


def test_gradients_are_no_forward(sampler: LineSampler) -> None:
    assert looked(sampler, FORWARD, 10).one_by_one == ""
