"""Loss curves of two sides are judged against the baselines' spread: the same, different from a step on, or broken."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from gpu_doctor.recording import Losses, Recording
from gpu_doctor.trials.compare.effect import compare
from gpu_doctor.trials.compare.losses import loss_words, parity, spread
from tests.support.recordings import Loop, losses

N = 50


def curve(batch: float = 32.0, n: int = N) -> Losses:
    step = np.arange(float(n))
    return Losses(step, step * batch, 2.3 * np.exp(-step * batch / 3200) + 0.1)


def recording(losses: Losses | None = None) -> Recording:
    return Loop(steps=N, facts={"losses": losses or curve()}).recording()


def turned(losses: Losses, change: Any) -> Losses:
    value = losses.value.copy()
    change(value)
    return dataclasses.replace(losses, value=value)


def scaled(by: float) -> Losses:
    return turned(curve(), lambda value: value.__imul__(1.0 + by))


def noisy(seed: int, size: float = 0.05, drift: float = 0.0, from_step: int = 0) -> Losses:
    """A run whose losses scatter from a step on, and lie `drift` too high in the mean."""
    noise = np.random.default_rng(seed).normal(drift, size, N)
    noise[:from_step] = 0.0
    return turned(curve(), lambda value: value.__imul__(1 + noise))


def grown(size: float, rate: float = 0.25) -> Losses:
    """A run in which one rounding of `size` grows from step to step."""
    return turned(curve(), lambda value: value.__imul__(1 + size * np.exp(rate * np.arange(N))))


def verdict(bases: list[Losses], candidate: Losses) -> str | None:
    return parity(bases, candidate).verdict


def test_a_loop_that_does_not_repeat_itself_is_distinguished_from_a_change() -> None:
    assert spread([curve()]) is None and spread([curve(), curve(), Losses()]) == 0.0
    assert spread([curve(), curve(), scaled(0.05)]) == pytest.approx(0.05)
    base, other = recording(), recording(scaled(0.05))
    assert compare([base, base], [other, other]).loss_changed
    found = compare([base, other], [other, other])
    assert (found.loss_verdict, found.loss_changed, found.loss_alone) == ("same", False, pytest.approx(0.05))


def test_the_like_of_the_baselines_own_runs_is_no_change() -> None:
    """Of runs that scatter alike none is taken for a change, of one that grew none within four times."""
    for seed in range(40):
        assert verdict([noisy(seed), noisy(seed + 100)], noisy(seed + 200)) == "same", seed
    assert verdict([curve(), grown(1e-6)], grown(3.5e-6)) == verdict([curve(), grown(1e-6)], grown(-3.5e-6)) == "same"
    assert verdict([curve(), curve()], grown(1e-6)) == "different", "runs that repeat themselves explain nothing"
    assert verdict([noisy(1)], noisy(2)) == "different", "nor does a single one"


def test_a_changed_training_does_not_hide_behind_a_loop_that_does_not_repeat_itself() -> None:
    bases = [noisy(1), noisy(2), noisy(3)]
    assert verdict(bases, turned(noisy(4), lambda value: value.__imul__(1.5))) == "different", "far more than they do"
    assert verdict(bases, noisy(4, drift=0.12)) == "different", "within their scatter, but to one side"
    assert verdict([curve(), grown(1e-6)], grown(1e-5)) == "different", "ten times what grew in them"
    late = [curve(), noisy(5, from_step=30)]
    assert verdict(late, noisy(6, from_step=30)) == "same"
    assert verdict(late, noisy(6)) == "different", "they agree for 30 steps, and it differs from the first one on"
    broken = turned(curve(), lambda value: value.__setitem__(slice(5, None), math.nan))
    assert verdict([curve(), broken], noisy(7)) == "different", "a baseline that breaks explains no difference"


def test_a_baseline_whose_losses_were_read_late_explains_only_what_differs_later() -> None:
    whole, late = curve(), noisy(1)
    late = Losses(late.step[20:], late.samples[20:], late.value[20:])
    assert verdict([whole, late], noisy(2, from_step=20)) == "same"
    assert verdict([whole, late], noisy(2)) == "different"


def test_what_breaks_on_both_sides_alike_is_the_same() -> None:
    ours = turned(curve(), lambda value: value.__setitem__(slice(30, None), math.nan))
    assert verdict([ours], ours) == "same"


def test_a_baseline_that_breaks_does_not_hide_what_differs_before() -> None:
    ours = turned(curve(), lambda value: value.__setitem__(slice(30, None), math.nan))
    found = parity([ours], scaled(0.1))
    assert (found.verdict, found.first_step, found.drift) == ("different", 1, pytest.approx(0.1))


def test_losses_that_are_no_numbers_from_the_first_step_on_are_reported() -> None:
    nothing = recording(turned(curve(), lambda value: value.fill(math.nan)))
    assert "NaN or infinite at the end, also without" in compare(nothing, nothing).loss_words


def test_beside_a_loss_that_breaks_stands_what_the_baseline_came_to() -> None:
    broken = turned(curve(), lambda value: value.__setitem__(slice(5, None), math.nan))
    found = compare(recording(), recording(broken))
    assert found.loss_verdict == "not-finite" and found.loss_changed
    assert found.baseline_loss == curve().value[-1]
    assert found.candidate_loss is not None and math.isnan(found.candidate_loss)


def test_of_another_batch_the_means_over_the_samples_are_compared_and_nothing_is_judged() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = curve(), curve(128.0)
    ours = dataclasses.replace(ours, value=ours.value * rng.normal(1, 0.2, N))  # single small batches scatter
    found = parity([ours], theirs, same_batch=False)
    assert (found.verdict, found.first_step) == (None, None)
    assert found.drift is not None and found.drift < 0.06
    worse = parity([ours], dataclasses.replace(theirs, value=theirs.value * 1.5), same_batch=False)
    assert worse.drift is not None and worse.drift > 0.3


def test_another_batch_that_breaks_breaks() -> None:
    broken = turned(curve(128.0), lambda value: value.__setitem__(slice(5, None), math.nan))
    found = parity([curve()], broken, same_batch=False)
    assert (found.verdict, found.first_step) == ("not-finite", 6)


def test_an_effect_says_it() -> None:
    effect = compare(recording(), recording(scaled(0.007)))
    assert (effect.loss_verdict, effect.loss_first_step) == ("same", None)
    assert effect.loss_words == "loss within 0.7 %"
    tiny = compare(recording(), recording(scaled(2e-5)))
    assert tiny.loss_words == "loss within 0.1 %" and "loss" not in str(tiny)
    other = compare(recording(), recording(scaled(0.04)))
    assert "loss differs from step 1 on, by up to 4 %" in str(other)
    assert "loss" not in str(compare(recording(), recording()))
    assert other.to_dict()["loss_verdict"] == "different"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("same", 0.0), "loss the same in every step"),
        (("different", 0.04, 3, 0.01), "loss differs from step 3 on, by up to 4 %; this loop alone by up to 1 %"),
        (("not-finite", math.inf, 12), "loss becomes NaN or infinite from step 12 on"),
        ((None, None), ""),
        ((None, 0.04), "loss within 4 %"),
        ((None, math.inf), "loss becomes NaN or infinite"),
    ],
)
def test_the_words(given: Any, said: str) -> None:
    assert loss_words(*given) == said


@pytest.mark.parametrize(
    ("since", "apart", "same"),
    [(9, 0.15, True), (9, -0.15, True), (8, 0.15, False), (5, 0.15, False), (9, 0.25, False)],
)
def test_a_side_may_differ_when_the_baselines_do_and_by_four_times_as_much(
    since: int, apart: float, same: bool
) -> None:
    """The runs of the baseline agree for eight steps, and differ by 5 % from then on."""

    def from_step(first: int, by: float) -> Losses:
        same = curve()
        return dataclasses.replace(same, value=np.where(same.step + 1 >= first, same.value * (1.0 + by), same.value))

    assert (verdict([curve(), from_step(9, 0.05)], from_step(since, apart)) == "same") == same


def test_without_samples_the_steps_are_lined_up() -> None:
    ours, theirs = (dataclasses.replace(losses(factor=one), samples=np.full(50, np.nan)) for one in (1.0, 1.02))
    assert parity([ours], theirs).drift == pytest.approx(0.02)


def test_a_loss_near_zero_is_no_drift() -> None:
    at = np.arange(3.0)
    ours, theirs = Losses(at, at, np.array([1.0, 1e-9, 1.0])), Losses(at, at, np.array([1.0, 3e-9, 1.0]))
    assert parity([ours], theirs).drift == pytest.approx(0.0, abs=1e-6)
