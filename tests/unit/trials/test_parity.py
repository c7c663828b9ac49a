"""Loss curves of two sides are judged: equal, within rounding, different from a step on, broken, or per sample seen."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from gpu_doctor import formatting
from gpu_doctor.recording import Losses, Recording
from gpu_doctor.trials.compare.effect import compare
from gpu_doctor.trials.compare.losses import (
    OPERATIONS,
    ROUNDOFF,
    coarsest,
    operations_of,
    parity,
    rounding,
    usual,
    varies,
)
from tests.support.recordings import Loop, losses

N = 50


def curve(batch: float = 32.0, n: int = N) -> Losses:
    step = np.arange(float(n))
    return Losses(step, step * batch, 2.3 * np.exp(-step * batch / 3200) + 0.1)


def recording(amp: str = "", losses: Losses | None = None, **setup: Any) -> Recording:
    settings: dict[str, Any] = {"amp": amp} if amp else {}
    return Loop(steps=N, settings=settings, setup=setup, told={"losses": losses or curve()}).recording()


def turned(losses: Losses, change: Any) -> Losses:
    value = losses.value.copy()
    change(value)
    return dataclasses.replace(losses, value=value)


def verdict(change: Any, dtype: str = "float32") -> tuple[str | None, int | None]:
    found = parity(curve(), turned(curve(), change), dtype)
    return found.verdict, found.first_step


def test_a_loop_that_does_not_repeat_itself_is_told_from_a_change() -> None:
    once, again = curve(), turned(curve(), lambda value: value.__imul__(1.01))
    assert usual([once]) is None and usual([once, curve(), Losses()]) == 0.0
    assert usual([once, curve(), again]) == pytest.approx(0.01)
    base, other = recording(losses=once), recording(losses=again)
    assert compare([base, base], [other, other]).loss_varies is False
    found = compare([base, other], [other, other])
    assert (found.loss_verdict, found.loss_varies) == ("different", True)


def noisy(seed: int, size: float = 0.02, drift: float = 0.0, from_step: int = 0) -> Losses:
    """A run whose losses scatter from a step on, and lie `drift` too high in the mean."""
    noise = np.random.default_rng(seed).normal(drift, size, N)
    noise[:from_step] = 0.0
    return turned(curve(), lambda value: value.__imul__(1 + noise))


def grown(size: float, rate: float = 0.25) -> Losses:
    """A run in which one rounding of `size` grows from step to step."""
    return turned(curve(), lambda value: value.__imul__(1 + size * np.exp(rate * np.arange(N))))


def test_the_like_of_the_baselines_own_runs_is_no_change() -> None:
    """Of runs that scatter alike none is taken for a change, of one that grew none within four times."""
    for seed in range(40):
        bases = [noisy(seed), noisy(seed + 100)]
        assert varies(bases, noisy(seed + 200), "float32"), seed
    assert varies([curve(), grown(1e-7)], grown(3.5e-7), "float32")
    assert varies([curve(), grown(1e-7)], grown(-3.5e-7), "float32")
    assert not varies([curve(), curve()], curve(), "float32"), "runs that repeat themselves explain nothing"
    assert not varies([noisy(1)], noisy(2), "float32"), "nor does a single one"


def test_a_changed_training_does_not_hide_behind_a_loop_that_does_not_repeat_itself() -> None:
    bases = [noisy(1), noisy(2), noisy(3)]
    assert not varies(bases, turned(noisy(4), lambda value: value.__imul__(1.5)), "float32"), "far more than they do"
    for dtype in ("float32", "bfloat16"):
        assert not varies(bases, noisy(4, drift=0.05), dtype), "within their scatter, but to one side"
    assert not varies([curve(), grown(1e-7)], grown(1e-6), "float32"), "ten times what grew in them"
    late = [curve(), noisy(5, from_step=30)]
    assert varies(late, noisy(6, from_step=30), "float32")
    assert not varies(late, noisy(6), "float32"), "they agree for 30 steps, and it differs from the first one on"
    broken = turned(curve(), lambda value: value.__setitem__(slice(5, None), math.nan))
    assert not varies([curve(), broken], noisy(7), "float32"), "a baseline that breaks explains no difference"


def test_a_baseline_whose_losses_were_read_late_explains_only_what_differs_later() -> None:
    whole, late = curve(), noisy(1)
    late = Losses(late.step[20:], late.samples[20:], late.value[20:])
    assert varies([whole, late], noisy(2, from_step=20), "float32")
    assert not varies([whole, late], noisy(2), "float32")


def test_a_gain_with_other_losses_is_told_from_one_of_a_loop_that_scatters() -> None:
    base, again = recording(losses=noisy(1)), recording(losses=noisy(2))
    assert compare([base, again], [recording(losses=noisy(3))] * 2).loss_varies
    apart = turned(noisy(3), lambda value: value.__imul__(1.4))
    found = compare([base, again], [recording(losses=apart)] * 2)
    assert (found.loss_verdict, found.loss_varies) == ("different", False)


def walked(size: float) -> Any:
    def change(value: Any) -> None:
        value *= 1 + size * np.sqrt(1 + np.arange(len(value)))

    return change


@pytest.mark.parametrize("dtype", ROUNDOFF)
def test_a_random_walk_of_rounding_is_explained_and_three_times_as_much_is_not(dtype: str) -> None:
    explained = rounding(dtype, OPERATIONS)
    assert verdict(walked(0.9 * explained), dtype) == ("within-rounding", None)
    assert verdict(walked(3 * explained), dtype) == ("different", 1)
    other = turned(curve(), walked(3 * explained))
    assert parity(curve(), other, dtype, 16 * OPERATIONS).verdict == "within-rounding", "of so many more operations"


def test_the_operations_of_a_step_are_those_of_the_side_with_most() -> None:
    assert operations_of(recording(graph_operations=700), recording(graph_operations=2)) == 700, "one is compiled"
    assert operations_of(recording(layers={"Linear": 30, "ReLU": 20})) == 150, "not heard: by its layers"
    assert operations_of(recording()) == OPERATIONS


def test_a_baseline_that_was_nudged_is_one_more_run_without_the_change() -> None:
    base, nudged = recording(losses=curve()), recording(losses=grown(1e-7))
    own = recording(losses=grown(2e-7))
    assert compare([base, base], [own, own]).loss_changed
    found = compare([base, base], [own, own], alone=[nudged])
    assert (found.loss_verdict, found.loss_varies, found.loss_changed) == ("different", True, False)
    assert found.loss_alone == pytest.approx(1e-7 * math.exp(0.25 * (N - 1)), rel=0.01)
    assert found.loss_words.endswith("by up to 4 %; this loop alone by up to 2 %")
    worse = recording(losses=turned(curve(), lambda value: value.__imul__(1.002)))
    assert compare([base, base], [worse, worse], alone=[nudged]).loss_changed, "from its first step on"


def test_what_breaks_on_both_sides_alike_is_equal() -> None:
    ours = turned(curve(), lambda value: value.__setitem__(slice(30, None), math.nan))
    assert parity(ours, ours).verdict == "equal"


def test_a_baseline_that_breaks_does_not_hide_what_differs_before() -> None:
    ours = turned(curve(), lambda value: value.__setitem__(slice(30, None), math.nan))
    found = parity(ours, turned(curve(), lambda value: value.__imul__(1.1)))
    assert (found.verdict, found.first_step, found.drift) == ("different", 1, pytest.approx(0.1))


def test_losses_that_are_no_numbers_from_the_first_step_on_are_told() -> None:
    nothing = recording(losses=turned(curve(), lambda value: value.fill(math.nan)))
    found = compare(nothing, nothing)
    assert "NaN or infinite at the end, also without" in found.loss_words


def test_beside_a_loss_that_breaks_stands_what_the_baseline_came_to() -> None:
    broken = turned(curve(), lambda value: value.__setitem__(slice(5, None), math.nan))
    found = compare(recording(), recording(losses=broken))
    assert found.loss_verdict == "not-finite"
    assert found.baseline_loss == curve().value[-1]
    assert found.candidate_loss is not None and math.isnan(found.candidate_loss)


def test_another_batch_is_compared_per_sample_seen() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = curve(), curve(128.0)
    ours = dataclasses.replace(ours, value=ours.value * rng.normal(1, 0.2, N))  # single small batches scatter
    found = parity(ours, theirs)
    assert (found.verdict, found.first_step) == ("per-sample", None)
    assert found.drift is not None and found.drift < 0.06
    worse = parity(ours, dataclasses.replace(theirs, value=theirs.value * 1.5))
    assert worse.drift is not None and worse.drift > 0.3


def test_another_batch_that_breaks_breaks() -> None:
    found = parity(curve(), turned(curve(128.0), lambda value: value.__setitem__(slice(5, None), math.nan)))
    assert (found.verdict, found.first_step) == ("not-finite", 6)


def test_an_effect_says_it() -> None:
    half = turned(curve(), walked(1e-3))
    effect = compare(recording(), recording("bf16", half))
    assert (effect.loss_verdict, effect.loss_first_step, effect.loss_dtype) == ("within-rounding", None, "bfloat16")
    assert effect.loss_words == "loss within 0.7 %, as bf16 rounds"
    tiny = compare(recording(), recording(losses=turned(curve(), lambda value: value.__imul__(1.00002))))
    assert tiny.loss_words == "loss differs from step 1 on, by less than 0.1 %"
    other = compare(recording(), recording(losses=turned(curve(), lambda value: value.__imul__(1.002))))
    assert "loss differs from step 1 on, by up to 0.2 %" in str(other)
    assert "loss" not in str(compare(recording(), recording()))
    assert other.to_dict()["loss_verdict"] == "different"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("equal", 0.0), "loss the same in every step"),
        (("not-finite", math.inf, 12), "loss becomes NaN or infinite from step 12 on"),
        (("per-sample", 0.021), "mean loss per sample within 2 %"),
        ((None, None), ""),
        ((None, 0.04), "loss within 4 %"),
    ],
)
def test_the_words(given: Any, said: str) -> None:
    assert formatting.losses(*given) == said


@pytest.mark.parametrize(
    ("one", "named"),
    [
        (recording(), "float32"),
        (recording("bf16"), "bfloat16"),
        (recording("fp16"), "float16"),
        (recording("off", autocast="bfloat16"), "bfloat16"),
        (recording(autocast="float16"), "float16"),
        (recording(device="cuda:0"), "float32"),
        (recording(device="cuda:0", flags={"matmul_precision": "high"}), "tf32"),
        (recording(device="cuda:0", flags={"matmul_precision": "highest"}, layers={"Conv2d": 2}), "tf32"),
        (recording(device="cpu", flags={"matmul_precision": "high"}), "float32"),
    ],
)
def test_the_coarsest_format_of_both_sides(one: Recording, named: str) -> None:
    assert coarsest(recording(), one) == named


@pytest.mark.parametrize(
    ("since", "apart", "excused"),
    [(9, 0.03, True), (9, -0.03, True), (8, 0.03, False), (5, 0.03, False), (9, 0.05, False)],
)
def test_a_side_may_differ_when_the_baselines_do_and_by_four_times_as_much(
    since: int, apart: float, excused: bool
) -> None:
    """The runs of the baseline agree for eight steps, and differ by a hundredth from then on."""

    def from_step(first: int, by: float) -> Losses:
        same = curve()
        return dataclasses.replace(same, value=np.where(same.step + 1 >= first, same.value * (1.0 + by), same.value))

    assert varies([curve(), from_step(9, 0.01)], from_step(since, apart), "float32") == excused


def test_without_samples_the_steps_are_lined_up() -> None:
    ours, theirs = (dataclasses.replace(losses(factor=one), samples=np.full(50, np.nan)) for one in (1.0, 1.02))
    assert parity(ours, theirs).drift == pytest.approx(0.02)


def test_a_loss_near_zero_is_no_drift() -> None:
    at = np.arange(3.0)
    ours, theirs = Losses(at, at, np.array([1.0, 1e-9, 1.0])), Losses(at, at, np.array([1.0, 3e-9, 1.0]))
    assert parity(ours, theirs).drift == pytest.approx(0.0, abs=1e-6)
