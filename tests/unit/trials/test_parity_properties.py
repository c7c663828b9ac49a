"""What holds of the comparison of two loss curves, whatever curves they are."""

from __future__ import annotations

from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_doctor.recording import Losses
from gpu_doctor.trials.compare.losses import BREAKS, DIFFERENT, LIKE, NEAR, SAME, Parity, parity, spread
from tests.support.properties import examples
from tests.support.properties import hypothesis_is_set_up as hypothesis_is_set_up

CHECK: Final = examples(60)
BATCH: Final = 32
VALUES: Final = st.lists(st.floats(0.5, 8.0), min_size=2, max_size=40)
"""Losses far from zero, where a difference is told relative to each of them."""


def curve(values: list[float], batch: int = BATCH) -> Losses:
    """One loss each step."""
    step = np.arange(float(len(values)))
    return Losses(step, step * batch, np.array(values))


@CHECK
@given(VALUES)
def test_a_curve_is_the_same_as_itself(values: list[float]) -> None:
    assert parity([curve(values)], curve(values)) == Parity(0.0, values[-1], values[-1], SAME)


@CHECK
@given(VALUES, VALUES, st.integers(-6, 6))
def test_it_is_of_no_matter_in_what_unit_a_loss_is(ours: list[float], theirs: list[float], power: int) -> None:
    found = parity([curve(ours)], curve(theirs))
    scaled = parity([curve([one * 2.0**power for one in ours])], curve([one * 2.0**power for one in theirs]))
    assert (found.drift, found.verdict, found.first_step) == (scaled.drift, scaled.verdict, scaled.first_step)


@CHECK
@given(VALUES, VALUES)
def test_figures_and_verdict_are_of_one_mind(ours: list[float], theirs: list[float]) -> None:
    found = parity([curve(ours)], curve(theirs))
    assert found.drift is not None
    assert (found.verdict == SAME) == (found.drift <= NEAR)
    assert (found.verdict == DIFFERENT) == (found.first_step is not None)


@CHECK
@given(VALUES, st.data())
def test_the_first_step_that_differs_is_named(values: list[float], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(values) - 1))
    theirs = [one * 3.0 if number >= at else one for number, one in enumerate(values)]
    found = parity([curve(values)], curve(theirs))
    assert (found.verdict, found.first_step) == (DIFFERENT, at + 1)


@CHECK
@given(VALUES, st.data(), st.sampled_from([np.nan, np.inf, -np.inf]))
def test_a_loss_that_breaks_on_one_side_alone_is_named_with_its_step(
    values: list[float], data: st.DataObject, broken: float
) -> None:
    at = data.draw(st.integers(0, len(values) - 1))
    theirs = [broken if number >= at else one for number, one in enumerate(values)]
    found = parity([curve(values)], curve(theirs))
    assert (found.verdict, found.first_step, found.drift) == (BREAKS, at + 1, np.inf)
    assert parity([curve(theirs)], curve(theirs)).verdict != BREAKS


@CHECK
@given(VALUES, VALUES, st.integers(2, 8))
def test_batches_of_another_size_are_compared_by_their_means_alone(
    ours: list[float], theirs: list[float], times: int
) -> None:
    found = parity([curve(ours)], curve(theirs, BATCH * times), same_batch=False)
    assert found.verdict is None and found.first_step is None
    assert found.drift is not None and 0.0 <= found.drift < np.inf


@CHECK
@given(VALUES, st.integers(0, 40))
def test_a_side_that_was_cut_short_is_compared_as_far_as_it_came(values: list[float], length: int) -> None:
    found = parity([curve(values)], curve(values[:length]))
    shared = values[:length]
    assert found.verdict == (SAME if shared else None)
    assert found.baseline == (shared[-1] if shared else values[-1])


@CHECK
@given(VALUES, st.floats(2 * NEAR, 0.5))
def test_a_loop_that_repeats_itself_excuses_nothing_and_one_that_does_not_only_as_much(
    values: list[float], noise: float
) -> None:
    base, again = curve(values), curve([one * (1.0 + noise) for one in values])
    other = curve([one * (1.0 - noise) for one in values])
    far = curve([one * (1.0 + 2 * LIKE * noise) for one in values])
    assert spread([base]) is None and spread([base, again]) == pytest.approx(noise)
    assert parity([base, base], other).verdict == DIFFERENT, "it repeats itself"
    assert parity([base, again], other).verdict == SAME and parity([base, again], far).verdict == DIFFERENT
