"""Two sides compared: the figure, its interval, the verdict, and what became of the loss."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any

import numpy as np
import pytest

from gpu_doctor.formatting import is_wide
from gpu_doctor.recording import Losses, Recording, Steps
from gpu_doctor.trials.compare.effect import NARROWED, Effect, compare, verdict_of
from gpu_doctor.trials.compare.ratio import (
    MISSES,
    MIXING,
    PRIOR_PAIRS,
    RUN_TO_RUN,
    SAME_SIDE,
    PairLog,
    Ratio,
    Stretch,
    ratio,
)
from gpu_doctor.trials.rounds import MOST_PAIRS, needs_more
from tests.support.runs_compared import run


def sides(speedup: float, pairs: int = 2, seed: int = 0, **given: float) -> tuple[list[Recording], list[Recording]]:
    seeds = iter(range(seed * 100, seed * 100 + 2 * pairs))
    bases, candidates = [], []
    for _ in range(pairs):
        made: dict[str, Any] = {"n": int(given.get("n", 50)), "jitter": given.get("jitter", 0.05)}
        bases.append(run(seed=next(seeds), **made))
        candidates.append(run(0.01 / speedup, seed=next(seeds), **made))
    return bases, candidates


def trials(speedup: float, number: int = 30, most: int = 10) -> list[Effect]:
    """Trials that end as soon as their answer is settled."""
    found = []
    for seed in range(number):
        bases, candidates = sides(speedup, pairs=most, seed=seed, jitter=0.1)
        pairs = 2
        while pairs < most and needs_more(bases[:pairs], candidates[:pairs]):
            pairs += 1
        found.append(compare(bases[:pairs], candidates[:pairs]))
    return found


def test_equal_sides_are_settled_within_some_pairs_and_called_equal_or_bounded() -> None:
    found = trials(1.0)
    assert not {one.verdict for one in found} & {"faster", "slower"}
    assert np.median([one.pairs for one in found]) <= 5 and max(one.pairs for one in found) < 10
    assert all(one.high is not None and one.high < 1.1 for one in found)


def test_fifteen_percent_are_found() -> None:
    assert sum(one.verdict == "faster" for one in trials(1.15, most=5)) >= 29


@pytest.mark.parametrize("speedup", [1.5, 2.0])
def test_a_clear_gain_takes_one_turn_and_no_less(speedup: float) -> None:
    assert {(one.verdict, one.pairs) for one in trials(speedup, 10, most=3)} == {("faster", 2)}
    assert needs_more(*sides(3.0, pairs=1)), "A B without B A: a drift would be on one side"


def test_the_figure_is_the_ratio_of_what_both_sides_did_after_warm_up() -> None:
    bases, candidates = sides(2.0)
    effect = compare(bases, candidates, predicted=2.1)
    assert effect.speedup is not None and effect.low is not None and effect.high is not None
    assert effect.speedup == pytest.approx(2.0, rel=0.03)
    assert effect.baseline_samples_per_s == pytest.approx(3200, rel=0.03)
    rate = effect.baseline_samples_per_s or 0.0
    assert effect.candidate_samples_per_s == pytest.approx(effect.speedup * rate, rel=0.01)
    assert 1.8 < effect.low < effect.speedup < effect.high < 2.2
    assert (effect.verdict, effect.outcome, effect.unit) == ("faster", "budget-reached", "samples/s")
    assert effect.baseline_wait_share == pytest.approx(0.5)
    assert effect.predicted_speedup == 2.1
    assert effect.steps == 4 * 49
    assert effect.seconds == pytest.approx(sum(one.duration_s for one in bases + candidates))


def test_the_interval_is_honest_about_the_true_ratio() -> None:
    inside = 0
    for seed in range(100):
        effect = compare(*sides(1.5, seed=seed, jitter=0.2))
        assert effect.low is not None
        assert effect.high is not None
        inside += effect.low <= 1.5 <= effect.high
    assert inside >= 90


def test_a_checkpoint_in_both_runs_cancels() -> None:
    plain, stalled = sides(1.0), sides(1.0)
    for side in stalled:
        for one in side:
            one.steps.wall_s[19::20] += 0.05
    widths = []
    for bases, candidates in (plain, stalled):
        effect = compare(bases, candidates)
        assert effect.verdict not in ("faster", "slower")
        assert effect.low is not None
        assert effect.high is not None
        widths.append(effect.high / effect.low - 1)
    assert widths[1] < 1.2 * widths[0]


def test_only_one_sides_evaluation_is_no_difference_in_speed() -> None:
    bases, candidates = [run(seed=1)], [run(seed=2, n=80)]
    candidates[0].steps.wall_s[70] += 5.0
    assert compare(bases, candidates).speedup == pytest.approx(1.0, abs=0.04)


@pytest.mark.parametrize(
    ("base", "candidate", "unit", "rate"),
    [
        (run(), run(0.02, samples=128.0, seed=3), "samples/s", 3200.0),
        (run(samples=float("nan")), run(0.005, seed=3), "steps/s", 100.0),
    ],
)
def test_samples_are_compared_and_steps_where_nobody_counted_samples(
    base: Recording, candidate: Recording, unit: str, rate: float
) -> None:
    effect = compare(base, candidate)
    assert effect.unit == unit and effect.speedup == pytest.approx(2.0, rel=0.05)
    assert effect.baseline_samples_per_s == pytest.approx(rate, rel=0.05)


@pytest.mark.parametrize("outcome", ["failed", "out-of-memory", "refused"])
def test_a_candidate_that_came_to_nothing_has_a_reason_and_no_speed(outcome: str) -> None:
    effect = compare([run()], [dataclasses.replace(run(0.001), outcome=outcome, reason="Because.")])
    assert (effect.outcome, effect.reason, effect.verdict) == (outcome, "Because.", "inconclusive")
    assert effect.speedup is effect.low is effect.high is None
    assert "Because." in str(effect)
    assert not needs_more([run()], [dataclasses.replace(run(), outcome=outcome)])


def test_a_stopped_side_is_judged_by_what_it_did() -> None:
    effect = compare([run()], [dataclasses.replace(run(0.005, seed=3), outcome="stopped")])
    assert effect.outcome == "stopped"
    assert effect.speedup == pytest.approx(2.0, rel=0.05)
    assert not needs_more([run()], [dataclasses.replace(run(), outcome="stopped")])


def test_a_baseline_that_failed_is_reported() -> None:
    effect = compare([dataclasses.replace(run(), outcome="failed", reason="KeyError: 'x'")], [run()])
    assert effect.outcome == "failed"
    assert effect.reason == "The baseline ended early: KeyError: 'x'"
    assert effect.speedup is None


@pytest.mark.parametrize("n", [0, 1, 3])
def test_too_few_steps_are_inconclusive(n: int) -> None:
    empty = Recording(Steps.of(wall_s=np.full(n, 0.01), samples=np.full(n, 8.0)))
    effect = compare(run(), empty)
    assert effect.verdict == "inconclusive"
    assert effect.low is effect.high is None


def test_a_difference_of_some_milliseconds_is_not_claimed() -> None:
    # 10 steps of 0.2 ms were said to be 2.73x faster, and once 232x: one stall on one side.
    slow, plain = run(5.4e-4, 10, jitter=0.02), run(2e-4, 10, jitter=0.02, seed=1)
    effect = compare([slow], [plain])
    assert effect.verdict == "inconclusive" and "more steps" in str(effect)
    plain.steps.wall_s[4] += 0.46
    assert compare([plain], [run(2e-4, 10, jitter=0.02, seed=2)]).verdict == "inconclusive"


def test_equal_stretches_with_one_stall_are_never_claimed() -> None:
    for n in (10, 20, 50, 100):
        stalled, plain = run(2e-4, n, jitter=0.02), run(2e-4, n, jitter=0.02, seed=1)
        stalled.steps.wall_s[n // 2] += 0.008
        assert compare([stalled], [plain]).verdict == "inconclusive"
        assert compare([plain], [stalled]).verdict == "inconclusive"


def test_a_candidate_that_is_very_fast_needs_no_more_time() -> None:
    effect = compare([run(5e-3, 50)], [run(5e-4, 50, seed=1)])
    assert effect.verdict == "faster" and not effect.reason


def test_no_side_is_an_error_that_says_so() -> None:
    with pytest.raises(ValueError, match="at least one recording of each side"):
        compare([], [run()])


def test_a_claim_with_a_wide_interval_is_tried_again() -> None:
    bases, candidates = sides(1.9, pairs=2, jitter=0.5)
    found = compare(bases, candidates)
    assert found.verdict == "faster" and found.low is not None and found.low < found.speedup / 1.2  # type: ignore[operator]
    assert needs_more(bases, candidates)
    assert not needs_more(*sides(1.9, pairs=NARROWED, jitter=0.5)), "its nearer end is the answer"
    assert str(found).startswith(f"second run against the first: at least {found.low:.2f}x (")
    assert not needs_more(*sides(4.0, pairs=2, jitter=0.1))
    for speedup in (4.0, 0.25):
        wide = compare(*sides(speedup, pairs=2, jitter=0.5))
        assert is_wide(wide.speedup, wide.low, wide.high) and wide.settled, "2x and more is proved"


def test_what_stays_unclear_is_tried_again_but_not_for_ever() -> None:
    assert needs_more(*sides(1.0, pairs=5, jitter=1.5))
    assert needs_more(*sides(1.0, pairs=MOST_PAIRS - 1, jitter=3.0))
    assert not needs_more(*sides(1.0, pairs=MOST_PAIRS, jitter=3.0))


def test_runs_too_short_for_an_interval_are_not_tried_for_ever() -> None:
    assert needs_more(*sides(1.0, pairs=5, n=8))
    assert not needs_more(*sides(1.0, pairs=6, n=8))


@pytest.mark.parametrize("at", [0, 2])
def test_a_run_that_was_cut_short_leaves_the_others_their_interval(at: int) -> None:
    bases, candidates = sides(1.15, pairs=4)
    whole = compare(bases, candidates)
    bases.insert(at, run(seed=98))
    candidates.insert(at, run(0.01 / 1.15, n=4, seed=99))
    found = compare(bases, candidates)
    assert (found.verdict, found.pairs, whole.pairs) == ("faster", 4, 4)
    assert found.low == pytest.approx(whole.low, rel=0.01)
    assert compare(bases[at], candidates[at]).low is None


def test_one_pair_beside_one_that_was_cut_short_is_one_pair() -> None:
    (good, short), (better, faster) = sides(1.3, pairs=2)
    assert compare([good, short], [better, faster]).pairs == 2 and not needs_more([good, short], [better, faster])
    cut = run(0.01 / 1.3, n=4, seed=5)
    assert compare([good, short], [better, cut]).verdict == "faster"
    assert needs_more([good, short], [better, cut])


@pytest.mark.parametrize(
    ("value", "reach", "verdict"),
    [
        (1.04, 1.035, "inconclusive"),
        (1.0, 1.029, "no-difference"),
        (1.0, 1.031, "inconclusive"),
        (1.01, 1.03, "inconclusive"),
        (0.99, 1.03, "inconclusive"),
        (1.06, 1.06, "inconclusive"),
        (1.06, 1.04, "faster"),
        (1 / 1.06, 1.04, "slower"),
        (1.03, 1.01, "faster"),
        (1 / 1.03, 1.01, "slower"),
        (1.02, 1.005, "no-difference"),
    ],
)
def test_the_verdict_is_read_off_the_interval(value: float, reach: float, verdict: str) -> None:
    assert verdict_of(Ratio(value, value / reach, value * reach)) == verdict


@pytest.mark.parametrize(
    ("low", "high", "pairs", "words"),
    [
        (1.005, 1.08, 5, ""),
        (1.005, 1.08, 9, "at most 1.08x"),
        (0.94, 1.029, 2, "at most 1.03x"),
        (0.99, 1.14, 9, ""),
        (0.99, 1.14, 10, "at most 1.14x"),
        (0.9, 1.16, 30, ""),
        (0.98, 1.02, 2, "no difference"),
        (1.02, 1.10, 2, "faster"),
        (1.4, 3.0, 5, ""),
        (1.4, 3.0, 6, "faster"),
        (0.7, 0.9, 2, "slower"),
    ],
)
def test_a_trial_ends_with_a_claim_or_with_a_bound_that_rises_with_its_pairs(
    low: float, high: float, pairs: int, words: str
) -> None:
    found = Ratio((low * high) ** 0.5, low, high)
    effect = Effect({}, {}, found.value, low, high, verdict_of(found), pairs=pairs)
    assert effect.settled == bool(words)
    assert effect.verdict_words == (words or effect.verdict_words)


def test_a_bound_is_said_of_what_is_no_proof_and_of_nothing_else() -> None:
    open_ = Effect({}, {}, 1.04, 1.005, 1.08)
    assert str(open_).endswith(" at most 1.08x")
    assert dataclasses.replace(open_, high=1.3).verdict_words == "inconclusive, at most 1.30x"
    assert dataclasses.replace(open_, low=None, high=None).verdict_words == "inconclusive"
    unfair = dataclasses.replace(open_, reason="Because.", pairs=30)
    assert unfair.verdict_words == "inconclusive" and not unfair.settled


def test_one_lucky_pair_makes_no_interval_of_no_width() -> None:
    exact = Stretch(np.full(48, 0.01), np.full(48, 32.0))
    found = ratio([PairLog.of(exact, exact)] * 2)
    assert found.value == pytest.approx(1.0)
    assert found.low is not None
    assert found.high is not None
    assert found.high - found.low > 2 * RUN_TO_RUN


def test_pairs_that_disagree_widen_the_interval() -> None:
    def pair(factor: float) -> PairLog:
        rows = np.ones(48)
        return PairLog.of(Stretch(np.full(48, 0.01), rows), Stretch(np.full(48, 0.01 / factor), rows))

    def width(*factors: float) -> float:
        found = ratio([pair(one) for one in factors])
        assert found.low is not None
        assert found.high is not None
        return found.high - found.low

    assert width(1.0, 1.3) > 2 * width(1.15, 1.15)


def pairs_of(logs: Any, variance: float = 0.001) -> list[PairLog]:
    """Pairs with such logs, between which others lie: no two runs of a side are next to each other."""
    return [PairLog(0.0, one, variance, number=2 * at) for at, one in enumerate(logs)]


def likelihood_ratio(logs: np.ndarray[Any, Any], expected: float, mean: float) -> float:
    """Of a mean that is normal around `mean` (the mixture) over `mean` itself, both with an inverse gamma variance.

    Both are multivariate t densities, written with their matrices.
    """
    n, off = len(logs), logs - mean

    def density(shape: np.ndarray[Any, Any]) -> float:
        form = 1.0 + off @ np.linalg.inv(shape) @ off / (PRIOR_PAIRS * expected)
        return float(np.linalg.det(shape) ** -0.5 * form ** (-(PRIOR_PAIRS + n) / 2))

    return density(np.eye(n) + np.ones((n, n)) / MIXING) / density(np.eye(n))


@pytest.mark.parametrize("n", [1, 2, 3, 8, 28])
def test_the_interval_ends_where_the_likelihood_ratio_says(n: int) -> None:
    logs = np.random.default_rng(n).normal(0.3, 0.05, n)
    found = ratio(pairs_of(logs))
    assert found.low is not None and found.high is not None
    for end in (found.low, found.high):
        at_the_end = likelihood_ratio(logs, 0.001 + RUN_TO_RUN**2, math.log(end))
        assert at_the_end == pytest.approx(1 / MISSES, rel=1e-6)


def in_turns(rng: np.random.Generator, spread: float, pairs: int = MOST_PAIRS) -> list[PairLog]:
    """Pairs of equal runs, each of which lies so far off by chance."""
    rates = rng.normal(0.0, spread / 2**0.5, (pairs, 2))
    return [PairLog(float(base), float(other), 0.001, number=at) for at, (base, other) in enumerate(rates)]


@pytest.mark.parametrize(("times", "most"), [(1.0, MISSES), (2.0, 2 * MISSES)])
def test_the_interval_holds_however_often_it_is_read(times: float, most: float) -> None:
    """Of equal sides it leaves out 1 at any look in at most one of twenty, with twice the usual spread in two."""
    rng, missed = np.random.default_rng(5), 0
    for _ in range(100):
        pairs = in_turns(rng, times * (0.001 + RUN_TO_RUN**2) ** 0.5)
        looks = [ratio(pairs[:n]) for n in range(1, MOST_PAIRS + 1)]
        missed += any((one.low or 0.0) > 1.0 or (one.high or 9.0) < 1.0 for one in looks)
    assert missed <= 100 * most


def width(pairs: list[PairLog]) -> float:
    found = ratio(pairs)
    return (found.high or math.inf) / (found.low or math.inf)


def test_the_spread_is_that_of_the_trials_own_runs() -> None:
    """Three pairs that agree on 1.2x: the baselines lie 8 % apart in one trial, and not at all in the other."""
    apart, alike = (
        [PairLog(base, base + math.log(1.2), 1e-6, number=number) for number, base in enumerate(bases)]
        for bases in ((0.0, 0.08, 0.0), (0.0, 0.0, 0.0))
    )
    assert width(apart) > 1.0 + 2 * (width(alike) - 1.0)
    assert width(alike) < width(pairs_of([math.log(1.2)] * 3, 1e-6)), "runs of one side that agree count too"


def test_of_one_side_are_the_last_run_of_a_pair_and_the_first_of_the_next() -> None:
    first, second, third = (PairLog(0.1 * n, 0.01 * n, None, number=n) for n in range(3))
    assert first.until(second) == pytest.approx(0.01), "B after A B"
    assert second.until(third) == pytest.approx(0.1), "A after B A"
    assert first.until(third) is None
    assert 0.0 < SAME_SIDE < 1.0


def test_a_long_pair_weighs_more_than_a_short_one_as_far_as_its_steps_are_what_varies() -> None:
    def centre(variance: float) -> float:
        short, long = PairLog(0.0, 0.0, 9 * variance, 1.0, 0), PairLog(0.0, 0.1, variance, 9.0, 1)
        return math.log(ratio([short, long]).value)

    assert centre(0.01) == pytest.approx(0.09, rel=0.03), "nine times the seconds, a ninth of the variance"
    assert centre(1e-7) == pytest.approx(0.05, rel=0.03), "what varies from run to run does so in both"


def test_a_pair_that_varies_more_than_its_length_says_has_no_smaller_weight() -> None:
    calm, stalled = PairLog(0.0, 0.0, 1e-4, number=0), PairLog(0.0, 0.1, 1e-2, number=1)
    assert math.log(ratio([calm, stalled]).value) == pytest.approx(0.05)


def test_comparing_touches_no_generator() -> None:
    bases, candidates = sides(1.1, pairs=3)
    np.random.seed(1)
    random.seed(1)
    before = repr(np.random.get_state()), random.getstate()
    first = compare(bases, candidates)
    assert (repr(np.random.get_state()), random.getstate()) == before
    assert compare(bases, candidates) == first


def test_the_sentence() -> None:
    effect = Effect({"num_workers": 2}, {}, 2.05, 1.91, 2.2, "faster", 2.0)
    assert str(effect) == "num_workers=2: 2.05x (1.9-2.2) faster, predicted 2.0x"
    ranged = dataclasses.replace(effect, predicted_low=1.62, predicted_high=2.4)
    assert str(ranged).endswith(" faster, predicted 2.0x (1.6-2.4)")
    assert str(dataclasses.replace(effect, loss_drift=0.04)).endswith(", loss within 4 %")
    larger = dataclasses.replace(effect, settings={"batch_size": 64}, predicted_speedup=None, batch_ratio=4.0)
    assert str(larger).startswith("batch_size=64: 2.05x (1.9-2.2) faster; ")
    assert "learning rate" in str(larger) and str(larger).endswith("(x4)")
    assert str(dataclasses.replace(effect, seconds=8.124)).endswith(", predicted 2.0x; took 8.12 s")
    refused = Effect({"amp": "fp16"}, outcome="refused", reason="Two optimizers.")
    assert str(refused) == "amp=fp16: refused: Two optimizers."
    assert str(Effect()).endswith("nothing was measured")
    same = Effect({"amp": "bf16"}, {"amp": "bf16"})
    assert str(same) == f"amp=bf16, {Effect()}"


def test_losses_that_are_no_numbers_on_both_sides_are_no_good_news() -> None:
    nan, said = float("nan"), "NaN or infinite at the end, also without"
    both = Effect({"num_workers": 2}, {}, 2.0, 1.9, 2.1, "faster", loss_drift=0.0, loss_verdict="same")
    assert "loss" not in str(both)
    for end, verdict in ((nan, "same"), (float("inf"), None)):
        broken = dataclasses.replace(both, baseline_loss=nan, candidate_loss=end, loss_verdict=verdict)
        assert said in broken.loss_words and said in str(broken)
    fine = dataclasses.replace(
        both, baseline_loss=0.5, candidate_loss=nan, loss_verdict="not-finite", loss_drift=math.inf
    )
    assert "becomes NaN" in fine.loss_words
    apart = dataclasses.replace(both, baseline_loss=nan, candidate_loss=nan, loss_verdict="different", loss_drift=0.2)
    assert "differs" in apart.loss_words, "what the change did before is not hidden by it"


def test_as_plain_data() -> None:
    plain = Effect({"amp": "bf16"}, speedup=1.5).to_dict()
    assert plain["settings"] == {"amp": "bf16"}
    assert plain["speedup"] == 1.5
    assert set(plain) == {one.name for one in dataclasses.fields(Effect)}


def test_losses_that_differ_take_no_further_pair() -> None:
    base, fast = sides(3.0, pairs=1)
    curve = np.arange(1.0, 50.0)
    first = [dataclasses.replace(one, losses=Losses(curve, 8.0 * curve, np.full(49, 2.0))) for one in base]
    other = [dataclasses.replace(one, losses=Losses(curve, 8.0 * curve, np.full(49, 3.0))) for one in fast]
    assert compare(first, other).loss_verdict == "different"
    first, other = 2 * first, 2 * other
    assert not needs_more(first, other)
