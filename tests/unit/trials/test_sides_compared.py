"""What of two sides is compared: the same steps, batches of the same size, formats, and losses that vary by chance."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gpu_doctor.recording import Losses
from gpu_doctor.trials.compare.effect import Effect, compare
from gpu_doctor.trials.compare.pairs import pair_of
from tests.support.runs_compared import fed, run


def curve(samples: float = 32.0, n: int = 50) -> Losses:
    step = np.arange(float(n))
    return Losses(step, step * samples, np.full(n, 2.0))


@pytest.mark.parametrize(("samples", "same"), [(200.0, True), (201.0, True), (199.0, True), (210.0, False)])
def test_a_batch_that_differs_by_less_than_a_hundredth_is_the_same(samples: float, same: bool) -> None:
    """So that an evaluation, which one side's budget reached, is no difference in speed; and as the losses see it."""
    base, candidate = run(seed=1, samples=200.0), run(seed=2, n=80, samples=samples)
    candidate.steps.wall_s[70] += 5.0
    base = dataclasses.replace(base, losses=curve(200.0))
    found = compare(base, dataclasses.replace(candidate, losses=curve(samples)))
    assert found.speedup is not None and (found.speedup > 0.9) == same
    assert found.batch_ratio == (None if same else samples / 200.0)
    assert found.loss_verdict == ("same" if same else None)


def test_batches_that_could_not_be_read_have_no_ratio() -> None:
    assert compare(run(), run(samples=float("nan"))).batch_ratio is None
    assert compare(run(samples=0.0), run()).batch_ratio is None


def test_of_a_candidate_that_came_to_nothing_no_loss_is_compared() -> None:
    sides = [dataclasses.replace(run(), losses=curve()) for _ in "ab"]
    whole, failed = compare(*sides), compare(sides[0], dataclasses.replace(sides[1], outcome="failed"))
    told = {one.name for one in dataclasses.fields(Effect) if one.name.startswith("loss_")}
    assert all(getattr(failed, name) == getattr(Effect(), name) for name in told)
    assert whole.loss_verdict == "same"


def test_what_was_made_meanwhile_counts_the_batches_of_the_last_step() -> None:
    plain, gathered = (fed([16.0 - i / 3 for i in range(48)]) for _ in "ab")
    rows = gathered.steps.rows(0, 25)
    rows.batches[-1] = 24.0  # an accumulation that goes on for longer
    gathered = dataclasses.replace(gathered, steps=rows)
    (one, _), (other, _) = pair_of(plain, plain, True), pair_of(gathered, gathered, True)
    assert one.made == pytest.approx(other.made, rel=1e-6) and one.made < 0.7
