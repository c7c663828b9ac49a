"""Loss curves of two sides are judged: equal, within rounding, different from a step on, broken, or per sample seen."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import gpu_doctor
from gpu_doctor import formatting
from gpu_doctor.recording import Losses, Recording, Setup, Steps
from gpu_doctor.trials.compare.effect import compare
from gpu_doctor.trials.compare.losses import (
    OPERATIONS,
    ROUNDOFF,
    operations_of,
    parity,
    rounding,
    usual,
    varies,
)

N = 50


def curve(batch: float = 32.0, n: int = N) -> Losses:
    step = np.arange(float(n))
    return Losses(step, step * batch, 2.3 * np.exp(-step * batch / 3200) + 0.1)


def turned(losses: Losses, change: Any) -> Losses:
    value = losses.value.copy()
    change(value)
    return dataclasses.replace(losses, value=value)


def verdict(change: Any, dtype: str = "float32") -> tuple[str | None, int | None]:
    found = parity(curve(), turned(curve(), change), dtype)
    return found.verdict, found.first_step


def test_the_same_numbers_are_equal() -> None:
    assert verdict(lambda value: None) == ("equal", None)


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
    assert not varies(bases, noisy(4, drift=0.05), "float32"), "within their scatter, but to one side"
    assert not varies([curve(), grown(1e-7)], grown(1e-6), "float32"), "ten times what grew in them"
    late = [curve(), noisy(5, from_step=30)]
    assert varies(late, noisy(6, from_step=30), "float32")
    assert not varies(late, noisy(6), "float32"), "they agree for 30 steps, and it differs from the first one on"
    broken = turned(curve(), lambda value: value.__setitem__(slice(5, None), math.nan))
    assert not varies([curve(), broken], noisy(7), "float32"), "a baseline that breaks explains no difference"


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


def test_what_bf16_explains_fp32_does_not() -> None:
    assert verdict(walked(1e-3), "bfloat16")[0] == "within-rounding"
    assert verdict(walked(1e-3), "float32")[0] == "different"


def test_the_first_step_that_differs_is_told() -> None:
    def later(value: Any) -> None:
        value[20:] *= 1.2

    assert verdict(later) == ("different", 21)
    assert verdict(later, "bfloat16") == ("different", 21)


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_the_step_at_which_it_breaks_is_told(broken: float) -> None:
    def once(value: Any) -> None:
        value[11:] = broken

    assert verdict(once) == ("not-finite", 12)


def test_what_breaks_on_both_sides_alike_is_equal() -> None:
    ours = turned(curve(), lambda value: value.__setitem__(slice(30, None), math.nan))
    assert parity(ours, ours).verdict == "equal"


def test_nothing_to_compare_has_no_verdict() -> None:
    assert parity(curve(), Losses()).verdict is None
    assert parity(Losses(), Losses()).verdict is None


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


def recording(amp: str = "", losses: Losses | None = None, **setup: Any) -> Recording:
    rows = Steps.of(wall_s=np.full(N, 0.01), samples=np.full(N, 32.0))
    settings = {"amp": amp} if amp else {}
    return Recording(rows, settings=settings, setup=Setup(dtype="float32", **setup), losses=losses or curve())


def test_an_effect_says_it() -> None:
    half = turned(curve(), walked(1e-3))
    effect = compare(recording(), recording("bf16", half))
    assert (effect.loss_verdict, effect.loss_first_step, effect.loss_dtype) == ("within-rounding", None, "bfloat16")
    assert effect.loss_words == "loss within 0.7 %, as bf16 rounds"
    tiny = compare(recording(), recording(losses=turned(curve(), lambda value: value.__imul__(1.00002))))
    assert tiny.loss_words == "loss differs from step 1 on, by less than 0.1 %"
    other = compare(recording(), recording(losses=turned(curve(), lambda value: value.__imul__(1.002))))
    assert str(other).endswith("loss differs from step 1 on, by up to 0.2 %")
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


CELL = """
for x, y in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""


def space(dropout: float = 0.2) -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(dropout), nn.Linear(32, 3))
    data = torch.utils.data.TensorDataset(torch.randn(640, 8), torch.randint(0, 3, (640,)))
    loader = torch.utils.data.DataLoader(data, 16, shuffle=True)
    return {"nn": nn, "model": model, "loader": loader, "optimizer": torch.optim.Adam(model.parameters(), 1e-3)}


@pytest.mark.parametrize(
    ("settings", "verdicts"),
    [
        ({"pin_memory": False}, {"equal"}),
        ({"num_workers": 1}, {"equal"}),
        ({"amp": "bf16"}, {"within-rounding"}),
        ({"batch_size": 32}, {"per-sample"}),
    ],
)
def test_real_trials(settings: dict[str, Any], verdicts: set[str]) -> None:
    effect = gpu_doctor.case(CELL, space()).trial(settings, steps=20, seconds=6.0)
    assert effect.loss_verdict in verdicts, effect


AUGMENTED = """
class Noisy(torch.utils.data.Dataset):
    def __len__(self): return 640
    def __getitem__(self, i): return x_all[i] + 0.5 * torch.randn(8), y_all[i]
loader = torch.utils.data.DataLoader(Noisy(), 16)
"""


@pytest.mark.parametrize(("rate", "changed"), [("0.01", False), ("0.01 if workers() else 1.0", True)])
def test_a_real_trial_that_draws_other_numbers_is_judged_by_runs_that_do_so(rate: str, changed: bool) -> None:
    """Augmentation in a worker draws its own numbers: that alone is no change, but it hides none either."""
    given = {**space(0.0), "torch": torch, "x_all": torch.randn(640, 8), "y_all": torch.randint(0, 3, (640,))}
    exec(AUGMENTED, given)
    given["workers"] = lambda: given["loader"].num_workers > 0
    cell = f"optimizer = torch.optim.SGD(model.parameters(), {rate})\n" + CELL
    before = [one.detach().clone() for one in given["model"].parameters()]
    case = gpu_doctor.case(cell, given)
    effect = case.trial({"num_workers": 0}, against={"num_workers": 1}, steps=30, seconds=8.0)
    assert effect.loss_verdict == "different" and effect.loss_changed is changed, effect
    assert effect.loss_alone is not None and effect.loss_alone > 1e-3, effect
    assert all(map(torch.equal, before, given["model"].parameters())), "the nudge is put back"


def test_a_real_trial_of_another_learning_rate_differs_from_the_second_step() -> None:
    cell = "lr = 0.1\noptimizer = torch.optim.SGD(model.parameters(), lr)\n" + CELL
    effect = gpu_doctor.case(cell, {**space(), "torch": torch}).trial({"vary.lr": 0.2}, steps=10, seconds=6.0)
    assert (effect.loss_verdict, effect.loss_first_step) == ("different", 2)


def test_a_real_trial_that_blows_up_tells_the_step() -> None:
    cell = "lr = 0.1\noptimizer = torch.optim.SGD(model.parameters(), lr)\n" + CELL
    given = {**space(), "torch": torch, "model": nn.Linear(8, 3)}
    effect = gpu_doctor.case(cell, given).trial({"vary.lr": 1e38}, steps=12, seconds=6.0)
    assert effect.loss_verdict == "not-finite", effect
    assert effect.loss_first_step is not None and 2 <= effect.loss_first_step <= 8
