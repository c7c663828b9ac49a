"""What holds of the comparison of two loss curves, whatever curves they are."""

from __future__ import annotations

from typing import Final

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpu_doctor.recording import Losses
from gpu_doctor.trials.compare.losses import (
    BREAKS,
    DIFFERENT,
    EQUAL,
    LIKE,
    PER_SAMPLE,
    ROUNDING,
    ROUNDOFF,
    Parity,
    parity,
    rounding,
    usual,
    varies,
)
from tests.support.properties import examples
from tests.support.properties import hypothesis_is_set_up as hypothesis_is_set_up

CHECK: Final = examples(60)
BATCH: Final = 32
VALUES: Final = st.lists(st.floats(0.5, 8.0), min_size=2, max_size=40)
"""Losses far from zero, where a difference is told relative to each of them."""
FORMATS: Final = st.sampled_from(sorted(ROUNDOFF))


def curve(values: list[float], batch: int = BATCH) -> Losses:
    """One loss each step."""
    step = np.arange(float(len(values)))
    return Losses(step, step * batch, np.array(values))


@CHECK
@given(VALUES, FORMATS, st.integers(1, 1000))
def test_a_curve_is_equal_to_itself(values: list[float], dtype: str, operations: int) -> None:
    found = parity(curve(values), curve(values), dtype, operations)
    assert found == Parity(0.0, values[-1], values[-1], EQUAL, None, dtype)


@CHECK
@given(VALUES, VALUES, FORMATS, st.integers(-6, 6))
def test_it_is_of_no_matter_in_what_unit_a_loss_is(
    ours: list[float], theirs: list[float], dtype: str, power: int
) -> None:
    found = parity(curve(ours), curve(theirs), dtype)
    scaled = parity(curve([one * 2.0**power for one in ours]), curve([one * 2.0**power for one in theirs]), dtype)
    assert (found.drift, found.verdict, found.first_step) == (scaled.drift, scaled.verdict, scaled.first_step)


@CHECK
@given(VALUES, VALUES, FORMATS)
def test_figures_and_verdict_are_of_one_mind(ours: list[float], theirs: list[float], dtype: str) -> None:
    found = parity(curve(ours), curve(theirs), dtype)
    assert found.drift is not None
    assert (found.verdict == EQUAL) == (found.drift == 0.0)
    assert (found.verdict == DIFFERENT) == (found.first_step is not None)
    if found.verdict == ROUNDING:
        assert found.drift <= rounding(dtype, 16) * min(len(ours), len(theirs)) ** 0.5


@CHECK
@given(VALUES, st.data(), FORMATS)
def test_the_first_step_that_differs_is_named(values: list[float], data: st.DataObject, dtype: str) -> None:
    at = data.draw(st.integers(0, len(values) - 1))
    theirs = [one * 3.0 if number >= at else one for number, one in enumerate(values)]
    found = parity(curve(values), curve(theirs), dtype)
    assert (found.verdict, found.first_step) == (DIFFERENT, at + 1)


@CHECK
@given(VALUES, st.floats(0.0, 0.99), FORMATS)
def test_what_rounding_explains_is_no_difference_and_less_so_in_a_finer_format(
    values: list[float], part: float, dtype: str
) -> None:
    away = part * rounding(dtype, 16)
    theirs = [one * (1.0 + away * (number + 1) ** 0.5) for number, one in enumerate(values)]
    assert parity(curve(values), curve(theirs), dtype).verdict in (EQUAL, ROUNDING)
    order = {EQUAL: 0, ROUNDING: 1, DIFFERENT: 2}
    verdicts = [parity(curve(values), curve(theirs), one).verdict for one in sorted(ROUNDOFF, key=ROUNDOFF.__getitem__)]
    ranks = [order[str(one)] for one in verdicts]
    assert ranks == sorted(ranks, reverse=True)


@CHECK
@given(VALUES, st.data(), st.sampled_from([np.nan, np.inf, -np.inf]))
def test_a_loss_that_breaks_on_one_side_alone_is_told_with_its_step(
    values: list[float], data: st.DataObject, broken: float
) -> None:
    at = data.draw(st.integers(0, len(values) - 1))
    theirs = [broken if number >= at else one for number, one in enumerate(values)]
    found = parity(curve(values), curve(theirs))
    assert (found.verdict, found.first_step, found.drift) == (BREAKS, at + 1, np.inf)
    assert parity(curve(theirs), curve(theirs)).verdict != BREAKS


@CHECK
@given(VALUES, VALUES, st.integers(2, 8))
def test_batches_of_another_size_are_compared_by_their_means(
    ours: list[float], theirs: list[float], times: int
) -> None:
    found = parity(curve(ours), curve(theirs, BATCH * times))
    assert found.verdict == PER_SAMPLE and found.first_step is None
    assert found.drift is not None and 0.0 <= found.drift < np.inf


@CHECK
@given(VALUES, st.integers(0, 40))
def test_a_side_that_was_cut_short_is_compared_as_far_as_it_came(values: list[float], length: int) -> None:
    found = parity(curve(values), curve(values[:length]))
    shared = values[:length]
    assert found.verdict == (EQUAL if shared else None)
    assert found.baseline == (shared[-1] if shared else values[-1])


@CHECK
@given(VALUES, st.floats(1e-3, 0.5))
def test_a_loop_that_repeats_itself_excuses_nothing_and_one_that_does_not_only_as_much(
    values: list[float], noise: float
) -> None:
    assume(noise > 2 * rounding("float32", 16) * len(values) ** 0.5)
    base, again = curve(values), curve([one * (1.0 + noise) for one in values])
    other = curve([one * (1.0 - noise) for one in values])
    far = curve([one * (1.0 + 2 * LIKE * noise) for one in values])
    assert usual([base]) is None and usual([base, again]) == pytest.approx(noise)
    assert not varies([base, base], other, "float32"), "it repeats itself"
    assert varies([base, again], other, "float32") and not varies([base, again], far, "float32")
