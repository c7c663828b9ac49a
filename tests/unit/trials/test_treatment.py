"""The treatment: it climbs to the best that a whole grid has, keeps only what is confirmed afresh, says how."""

from __future__ import annotations

import dataclasses
import html
import json
import queue
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import gpu_doctor
from gpu_doctor import formatting
from gpu_doctor.diagnosis import diagnose
from gpu_doctor.diagnosis.rules.rule import Safety
from gpu_doctor.recording import Settings, SettingValue, Setup, describe
from gpu_doctor.report.plan import plan_html
from gpu_doctor.trials import loss_reasons, race
from gpu_doctor.trials.candidates import Move, moves
from gpu_doctor.trials.compare.effect import BY_SETTINGS, Effect
from gpu_doctor.trials.plan import Plan
from gpu_doctor.trials.results import training_changes
from gpu_doctor.trials.run import Result
from gpu_doctor.trials.snapshot.snapshot import Snapshot
from gpu_doctor.trials.treat import TOGETHER
from tests.support.recordings import Loop, on_gpu
from tests.support.training_worlds import DECODING, SLOW_SERVER, WORLDS, World, WorldCase, case_of, recorded


@pytest.mark.parametrize("ticked", [True, False])
def test_what_changes_the_training_is_tried_only_where_that_was_allowed(
    monkeypatch: pytest.MonkeyPatch, ticked: bool
) -> None:
    seen: list[set[Safety]] = []

    def none(diagnosis: object, allowed: set[Safety], *rest: object) -> Iterator[Move]:
        seen.append(allowed)
        return iter(())

    monkeypatch.setattr("gpu_doctor.trials.treat.moves", none)
    case_of(SLOW_SERVER).treat(changes_training=ticked)
    assert seen == [{Safety.SAFE, Safety.CHANGES_TRAINING} if ticked else {Safety.SAFE}]


def test_of_settings_that_are_equally_fast_the_cheapest_is_chosen() -> None:
    """Three workers keep up with this training, two nearly; a fourth, or more ahead, would only lie in memory."""
    world = World(waits=20, trains=9, epoch=1000, cores=8, layers=200)
    plan = case_of(world).treat(steps=50)
    assert int(plan.settings["num_workers"]) in (2, 3)
    assert "prefetch_factor" not in plan.settings
    assert "persistent_workers" not in plan.settings


def test_a_loop_that_is_well_is_left_as_written() -> None:
    plan = case_of(World(computes=0.05, trains=10, updates=0.1, layers=100)).treat(steps=50)
    assert plan.settings == {}
    assert plan.speedup == 1.0
    assert [one.label for one in plan.waterfall] == ["as written"]


@pytest.mark.parametrize("seed", range(5))
def test_what_the_plan_has_was_verified(seed: int) -> None:
    """Every step of the waterfall is a trial that ended faster, and so is the whole."""
    case = case_of(SLOW_SERVER, seed)
    plan = case.treat(steps=50)
    gained = [effect for effect in plan.effects if effect.verdict == "faster"]
    steps = [one for one in plan.waterfall[1:] if not one.verified]
    assert all(any(effect.speedup == one.gain for effect in gained) for one in steps)
    last = plan.effects[-1]
    assert last in gained and dict(last.settings) == dict(plan.settings) and not last.baseline_settings
    assert plan.speedup == last.speedup and plan.verified == last.verified == plan.waterfall[-1].verified
    assert case.asked, "by trials"
    assert case.namespace["weights"].tolist() == [0.0, 0.0, 0.0]


def test_the_waterfall_multiplies_up_and_ends_with_all_together() -> None:
    plan = case_of(DECODING).treat(steps=50)
    first, *steps, whole = plan.waterfall
    assert (first.label, first.speedup, first.gain) == ("as written", 1.0, None)
    assert len(steps) >= 2
    so_far = 1.0
    for one in steps:
        assert one.gain is not None and one.low is not None and one.high is not None
        so_far *= one.gain
        assert one.speedup == pytest.approx(so_far)
        assert one.low <= one.gain <= one.high
    assert whole.label == TOGETHER
    assert whole.settings == plan.settings
    assert whole.speedup == plan.speedup == plan.effects[-1].speedup
    assert plan.effects[-1].baseline_settings == {}
    assert plan.speedup == pytest.approx(so_far, rel=0.1)


def test_a_step_that_takes_workers_away_takes_what_acts_on_them_and_is_listed_in_the_plan() -> None:
    world = WORLDS["short epochs"]
    plan = case_of(world).treat(steps=50)
    assert plan.settings["num_workers"] == 0
    assert "persistent_workers" not in plan.settings
    told = str(plan)
    assert "not kept: num_workers=0" not in told


def test_one_step_is_measured_once_more_and_only_that_figure_is_verified() -> None:
    """The winner of a climb was picked for its figure: it is asked again, and the first one is only called measured."""
    plan = case_of(WORLDS["an optimizer"]).treat(steps=50)
    assert plan.settings == {"fused_optimizer": True}
    assert [one.label for one in plan.waterfall] == ["as written", "fused_optimizer=True", "measured again"]
    assert [one.verified for one in plan.waterfall] == ["", "", BY_SETTINGS]
    first, again = plan.effects[0], plan.effects[-1]
    assert (first.verified, again.verified, plan.verified) == ("", BY_SETTINGS, BY_SETTINGS)
    assert first.settings == again.settings and plan.speedup == again.speedup != first.speedup
    for told in (str(plan), html.unescape(plan_html(plan))):
        assert f"{formatting.factor(plan.speedup)} faster, verified by settings, in " in told
        assert "Verified by settings, not by running" in told
        assert told.count(f"verified ({formatting.interval(again.low, again.high)})") == 1


def test_a_winner_that_is_not_confirmed_is_not_in_the_plan() -> None:
    def says(settings: Settings, against: Settings) -> tuple[float, str]:
        return (1.07, "faster") if not case.effects else (1.01, "no-difference")

    case = Scripted(WORLDS["an optimizer"], says)
    plan = case.treat(2, steps=50)
    assert len(plan.effects) == 2 and plan.effects[0].settings == plan.effects[1].settings
    assert (plan.settings, plan.speedup, plan.verified, plan.code) == ({}, 1.0, "", "")
    assert [one.label for one in plan.waterfall] == ["as written"] and not plan.fix.cells
    name = describe(plan.effects[0].settings)
    said = f"{name} looked 1.07x as fast and was not confirmed"
    assert any(one.startswith(said) and "1.01x (0.99-1.03)" in one for one in plan.notes) and said in str(plan)
    assert "found no setting worth keeping" in str(plan) and "verified" not in str(plan)


def test_one_trial_is_always_put_by_for_the_last_and_comes_on_top_of_a_single_one() -> None:
    faster = partial(_always, (1.5, "faster"))
    for most, made in ((1, 2), (2, 2), (3, 3), (4, 4)):
        plan = Scripted(DECODING, faster).treat(most, steps=50)
        assert len(plan.effects) == made and plan.verified and not plan.effects[-1].baseline_settings
    slower = Scripted(DECODING, partial(_always, (0.9, "slower"))).treat(1, steps=50)
    assert len(slower.effects) == 1, "where nothing was kept, nothing is measured again"


class Scripted(WorldCase):
    """A case whose trials end as told: settings and baseline -> (speed-up, verdict)."""

    def __init__(self, world: World, says: Callable[[Settings, Settings], tuple[float, str]]) -> None:
        super().__init__(world)
        self.says = says
        self.recordings.append(recorded(world, {}, 100, self.rng))

    def treat(self, *given: Any, **asked: Any) -> Plan:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(race, "tried", lambda case, settings, **how: case.trial(settings, **how))
            return super().treat(*given, **asked)

    def trial(self, settings: Settings, **given: Any) -> Effect:
        against = dict(given.get("against") or {})
        speedup, verdict = self.says(settings, against)
        base, candidate = (recorded(self.world, one, 60, self.rng) for one in (against, settings))
        self.trials.append((base, candidate))
        effect = Effect(
            dict(settings), against, speedup, 0.98 * speedup, 1.02 * speedup, verdict, outcome="budget-reached"
        )
        self.effects.append(effect)
        return effect


def test_a_whole_that_is_not_confirmed_falls_back_to_its_first_step_measured_afresh() -> None:
    """Steps that gain one by one, such as a machine that got faster meanwhile, and nothing together."""

    def says(settings: Settings, against: Settings) -> tuple[float, str]:
        return (1.01, "no-difference") if len(settings) > 1 and not against else (1.3, "faster")

    case = Scripted(DECODING, says)
    plan = case.treat(20, steps=50)
    whole, first = plan.effects[-2:]
    assert plan.settings == plan.effects[0].settings == first.settings and len(plan.settings) == 1 < len(whole.settings)
    assert whole.baseline_settings == first.baseline_settings == {}
    assert plan.speedup == first.speedup and case.effects[-2:] == [whole, first]
    assert [one.label for one in plan.waterfall][2:] == ["measured again"] and plan.waterfall[-1].verified
    assert "was not confirmed" in plan.notes[0] and plan.notes[0] in str(plan)
    spent = Scripted(DECODING, says).treat(4, steps=50)
    assert (spent.settings, spent.speedup, spent.verified) == ({}, 1.0, ""), "no trial was left to measure it afresh"


def _always(answer: tuple[float, str], settings: Settings, against: Settings) -> tuple[float, str]:
    return answer


def test_a_gain_under_three_percent_or_in_doubt_is_not_in_the_plan() -> None:
    """And no trial is made twice."""
    for answer in ((1.029, "faster"), (1.4, "inconclusive"), (0.9, "slower"), (1.0, "no-difference")):
        plan = Scripted(SLOW_SERVER, partial(_always, answer)).treat(20, steps=50)
        assert plan.settings == {} and plan.speedup == 1.0
        tried = [tuple(sorted(effect.settings.items())) for effect in plan.effects]
        assert tried and len(tried) == len(set(tried))


class Differing(Scripted):
    """Every trial gains, and its losses differ from a step on."""

    def __init__(self, world: World, first_step: int, **losses: Any) -> None:
        super().__init__(world, lambda settings, against: (2.0, "faster"))
        self.losses = {
            "loss_drift": 0.02,
            "loss_verdict": "different",
            "loss_first_step": first_step,
            **losses,
        }

    def trial(self, settings: Settings, **given: Any) -> Effect:
        return dataclasses.replace(super().trial(settings, **given), **self.losses)


def test_a_loss_that_breaks_is_no_cure() -> None:
    assert Differing(SLOW_SERVER, 1, loss_drift=float("inf"), loss_verdict="not-finite").treat(steps=50).settings == {}


@pytest.mark.parametrize("first_step", [1, 2])
def test_a_safe_gain_whose_losses_differ_for_no_known_reason_is_left_for_the_hand(first_step: int) -> None:
    plan = Differing(WORLDS["an optimizer"], first_step).treat(steps=50)
    assert plan.settings == {} and plan.effects[0].settings == {"fused_optimizer": True}
    (left,) = [one for one in plan.by_hand if "fused_optimizer=True is 2.00x as fast" in one]
    assert f"loss differs from step {first_step} on, by up to 2 %" in left
    for told in (str(plan), html.unescape(plan_html(plan))):
        assert left in told, "named among what is left"
        assert f"faster, but its loss differs from step {first_step} on" in told, "and beside what was not kept"


def test_settings_whose_losses_differ_for_a_known_reason_stay_and_the_reason_is_named() -> None:
    """Here: workers draw other random numbers."""
    plan = Differing(DECODING, 1, loss_alone=0.0).treat(steps=50)
    kept = plan.waterfall[1]
    assert "num_workers" in plan.settings and kept.loss_verdict == "different"
    assert "from step 1 on, by up to 2 %" in kept.losses and kept.losses.endswith(
        "num_workers draws other random numbers"
    )
    for told in (str(plan), html.unescape(plan_html(plan))):
        assert kept.losses in told


def test_reasons_for_other_losses_are_found_in_the_settings() -> None:
    def why(settings: Settings, against: Settings, *layers: str) -> str:
        effect = Effect(settings, against, loss_drift=0.1, loss_verdict="different", loss_first_step=1)
        return loss_reasons.reason(effect, Setup(layers=dict.fromkeys(layers, 1)))

    workers = {"num_workers": 4}
    assert why(workers, {}).startswith("num_workers draws other random") and why({"num_workers": 0}, workers)
    assert why({**workers, "threads": 2}, workers) == "", "on both sides it explains nothing"
    assert why({"compile": True, "threads": 2}, {}, "Linear") == ""
    assert why({"compile": True}, {}, "Linear", "Dropout1d") and not why({"fused_optimizer": True}, {}, "Dropout")
    assert why({"batch_size": 64}, {}) == "batch_size changes the training"
    assert why({"amp": "bf16"}, {}) == why({"tf32": True}, {}) == "", "rounding alone is no such reason"
    assert why({"amp": "fp16"}, {}).startswith("fp16 leaves out its first steps")


def test_every_step_of_the_plan_says_what_became_of_its_losses() -> None:
    same = Differing(DECODING, 0, loss_drift=0.0, loss_verdict="same", loss_first_step=None).treat(4, steps=50)
    assert [one.loss_verdict for one in same.waterfall[1:]] == ["same"] * (len(same.waterfall) - 1)
    assert same.waterfall[-1].label == TOGETHER
    assert str(same).count("loss the same in every step") == len(same.waterfall) - 1


def test_a_stop_between_two_trials_of_a_treatment_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    case = case_of(DECODING)

    def stopping(*given: Any) -> Iterator[Move]:
        if case.effects:
            case.stop()
        return moves(*given)

    monkeypatch.setattr("gpu_doctor.trials.treat.moves", stopping)
    plan = case.treat(8, steps=50)
    assert [one.outcome for one in plan.effects[1:]] == ["stopped"] and not plan.verified
    assert case.trial({"num_workers": 1}, steps=50, pairs=1).outcome != "stopped", "the next request forgets it"


def test_what_changes_the_training_is_tried_only_when_ticked() -> None:
    found = diagnose(on_gpu(gpu_util=50.0, peak_share=0.3, caught_up=1.0).recording())
    safe = {name for one in moves(found, {Safety.SAFE}, {}, []) for name in one.settings}
    ticked = {name for one in moves(found, {Safety.SAFE, Safety.CHANGES_TRAINING}, {}, []) for name in one.settings}
    assert not safe & {"batch_size", "amp", "tf32"}
    assert "batch_size" in ticked


def test_a_setting_of_the_plan_that_changes_the_training_is_named() -> None:
    said = training_changes({"num_workers": 2, "batch_size": 64})
    assert len(said) == 1 and said[0].startswith("batch_size changes the training: ") and "learning rate" in said[0]


def test_workers_are_tried_with_staying_over_short_epochs_and_without_in_one_long_epoch() -> None:
    def first(world: World) -> dict[str, SettingValue]:
        case = case_of(world)
        return next(moves(diagnose(case.recordings[0]), {Safety.SAFE}, {}, [])).settings

    assert first(SLOW_SERVER)["persistent_workers"] is True
    assert "persistent_workers" not in first(dataclasses.replace(SLOW_SERVER, epoch=1000))


def test_a_loader_that_refuses_is_not_tried() -> None:
    loop = Loop(wait=40.0, fetch_cpu=1.0, loader={"refusals": {"num_workers": "A custom loader."}})
    names = {name for one in moves(diagnose(loop.recording()), {Safety.SAFE}, {}, []) for name in one.settings}
    assert "num_workers" not in names


def test_stop_ends_it_with_the_settings_so_far() -> None:
    case = Scripted(DECODING, lambda settings, against: (1.5, "faster"))
    trial, times = case.trial, iter(range(100))

    def stopping(settings: Settings, **given: Any) -> Effect:
        effect = trial(settings, **given)
        if next(times) == 1:
            case.stop()
        return effect

    case.trial = stopping  # type: ignore[method-assign]
    plan = case.treat(steps=50)
    assert len(plan.effects) == 2
    assert len(plan.waterfall) == 3
    assert plan.verified == "" and "not verified" in plan.notes[0]
    assert "1.5" not in plan.notes[0] and "measured step by step and not verified, in 2 trials" in str(plan)


class Interrupted(WorldCase):
    """The user interrupts while the `number`-th side that is a candidate runs."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world)
        self.number = number
        self.recordings.append(recorded(world, {}, 2 * world.epoch + 20, self.rng))

    def once(self, settings: Settings, role: str, max_steps: int | None, max_s: float | None, text: str = "") -> Result:
        result = super().once(settings, role, max_steps, max_s)
        if len(self.asked) < self.number:
            return result
        return Result(dataclasses.replace(result.recording, outcome="interrupted"), KeyboardInterrupt())


def test_an_interrupt_passes_on_and_leaves_the_plan_of_what_was_measured() -> None:
    whole = case_of(SLOW_SERVER)
    plan = whole.treat(steps=50)
    assert whole.plans == [plan]
    first = next(n for n, one in enumerate(whole.asked) if one != whole.asked[0])
    case = Interrupted(SLOW_SERVER, first + 1)  # the first candidate of the second trial
    with pytest.raises(KeyboardInterrupt):
        case.treat(steps=50)
    (kept,) = case.plans
    assert kept.settings == kept.effects[0].settings and kept.effects[0].verdict == "faster"
    assert [one.outcome for one in kept.effects] == ["budget-reached", "interrupted"]
    assert case.effects == list(kept.effects)
    assert kept.speedup > 1.5 and len(kept.waterfall) == 2
    assert "The treatment was interrupted." in str(kept) and "are not verified" in str(kept) and not kept.verified
    assert case.namespace["weights"].tolist() == [0.0, 0.0, 0.0]


def test_an_interrupt_of_the_last_trial_leaves_what_was_measured_step_by_step_and_says_so() -> None:
    case = Scripted(DECODING, lambda settings, against: (1.5, "faster"))
    trial = case.trial

    def interrupting(settings: Settings, **given: Any) -> Effect:
        if len(settings) > 1 and not given["against"]:
            raise KeyboardInterrupt
        return trial(settings, **given)

    case.trial = interrupting  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        case.treat(4, steps=50)
    (kept,) = case.plans
    assert len(kept.waterfall) > 2 and kept.waterfall[-1].label != TOGETHER
    assert "are not verified" in str(kept)


def test_a_plan_is_plain_data_and_says_what_is_left_by_hand() -> None:
    plan = case_of(SLOW_SERVER).treat(2, steps=50)
    plain = json.loads(json.dumps(plan.to_dict()))
    assert plain["settings"] == dict(plan.settings)
    first = {"label": "as written", "settings": {}, "speedup": 1.0, "losses": "", "verified": ""}
    unmeasured = ("gain", "low", "high", "loss_verdict", "loss_first_step")
    assert plain["waterfall"][0] == {**first, **dict.fromkeys(unmeasured)}
    assert plain["verified"] == plan.verified
    assert "<" in plan._repr_html_()
    assert Plan({}, 1.0, (), "").waterfall == ()


def test_a_case_that_was_never_run_is_measured_first() -> None:
    case = gpu_doctor.case("ran = 1", {})
    plan = case.treat(steps=3, seconds=3)
    assert len(case.trials) == 1
    assert "ran" not in case.namespace
    assert plan.reason in str(plan) and plan.reason


def test_a_stop_of_before_does_not_end_what_is_measured_next() -> None:
    case = gpu_doctor.case("ran = 1", {})
    case.stop()
    assert case.measured(steps=3, seconds=3).outcome == "completed"
    assert "ran" not in case.namespace


def test_what_measuring_and_trials_leave_behind_is_in_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a case that was never run its first step is a measurement: it writes and cannot put back like a trial."""
    monkeypatch.chdir(tmp_path)
    lost = "A Stream is closed."
    monkeypatch.setattr(Snapshot, "restore", lambda snapshot: (lost,))
    case = gpu_doctor.case("open('x.txt', 'w').close()", {"waiting": queue.SimpleQueue()})
    plan = case.treat(steps=3, seconds=3)
    assert not plan.effects
    kept, last = plan.notes
    assert "waiting (SimpleQueue)" in kept and last == lost
    assert all(one in str(plan) and one in plan._repr_html_() for one in plan.notes)
    assert lost in case.trials[0][0].notes

    def leaving(settings: Settings, **given: Any) -> Effect:
        effect = trial(settings, **given)
        return dataclasses.replace(effect, not_restored=("a trial cannot put back: f (file)",))

    scripted = Scripted(SLOW_SERVER, lambda settings, against: (0.9, "slower"))
    trial, scripted.trial = scripted.trial, leaving  # type: ignore[method-assign]
    (kept,) = scripted.treat(3, steps=50).notes
    assert kept.endswith("cannot put back: f (file).")


class BudgetedCase(WorldCase):
    """Its runs end with their steps, not with their code."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.steps: list[int] = []

    def once(self, settings: Settings, role: str, max_steps: int | None, max_s: float | None, text: str = "") -> Result:
        self.steps.append(max_steps or 0)
        found = super().once(settings, role, max_steps, max_s)
        return dataclasses.replace(found, recording=dataclasses.replace(found.recording, outcome="budget-reached"))


def test_steps_too_short_to_be_judged_are_given_more_in_the_next_pair() -> None:
    """Rows in memory behind workers: forty steps without them last 15 ms, in which no difference can be claimed."""
    quick = World(computes=0.05, trains=0.2, updates=0.05, written={"num_workers": 4}, cores=8)
    case = BudgetedCase(quick)
    effect = case.trial({"num_workers": 0}, steps=40)
    assert (effect.verdict, effect.reason) == ("faster", "")
    assert case.steps[:2] == [40, 40] and 200 < case.steps[2] == case.steps[3] < 800
    slow = BudgetedCase(World(trains=20.0, written={"num_workers": 4}))
    slow.trial({"num_workers": 2}, steps=40)
    assert set(slow.steps) == {40}
