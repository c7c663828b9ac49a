"""Why rules are silent: words for every vital that is needed, no GPU suggested, and a rule that fails is named."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from gpu_doctor.diagnosis import diagnose, judged
from gpu_doctor.diagnosis import diagnosis as module
from gpu_doctor.diagnosis.rules import CAUSES, RULES
from gpu_doctor.diagnosis.rules.rule import Cause, Finding
from gpu_doctor.diagnosis.silent_rules import Silence, by_reason, known, reason, words
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import DeviceSetup, Recording, Setup, Steps
from gpu_doctor.recording.setup import EvaluationFacts, InputFacts, ModelFacts, OptimizerFacts, World
from tests.support.found import BY_CAUSE
from tests.support.recordings import Loop, on_gpu


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.name)
def test_every_vital_that_a_rule_needs_has_words(cause: Cause) -> None:
    for vital in (*cause.needs, *(cause.cpu_needs or ())):
        if vital != "outcome":  # of every run
            assert known(vital), vital
            assert "_" not in words(vital) and "was not measured" not in words(vital)


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.name)
def test_without_a_gpu_no_reason_suggests_that_one_was_read(cause: Cause) -> None:
    for vitals in (Vitals(), measure(Loop().recording()), measure(Recording(Steps.of(wall_s=[])))):
        said = reason(cause, vitals)
        assert "GPU" not in said.replace("no GPU", "") and "NVML" not in said and "card" not in said


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.name)
def test_one_cause_is_told_and_only_where_something_lacks(cause: Cause) -> None:
    for vitals in (Vitals(on_gpu=True), Vitals(), measure(on_gpu().recording())):
        said = reason(cause, vitals)
        assert bool(said) == any(getattr(vitals, name) is None for name in cause.needed(vitals))
        assert ", the" not in said and not said.startswith("needs")


SEEN: dict[str, Any] = {
    "model": ModelFacts({"cuda:0": 1000}),
    "parameters": 1000,
    "inputs": InputFacts(looked_at=40, shapes=1, shape=(32, 16)),
    "optimizer_facts": (OptimizerFacts("Adam", 4, 1000),),
    "evaluation": EvaluationFacts(),
    "torch_threads": 1,
    "world": World(),
}


@pytest.mark.parametrize(
    ("fact", "rules", "why"),
    [
        ("model", "channels-first-convolutions not-compiled data-parallel", "no model"),
        ("parameters", "model-too-small", "no model"),
        ("inputs", "changing-shapes cudnn-not-tuned not-compiled model-too-small", "no model"),
        ("optimizer_facts", "unfused-optimizer", "no optimizer"),
        ("evaluation", "eval-with-gradients", "no model"),
        ("torch_threads", "cpu-oversubscription", "the threads"),
    ],
)
def test_what_was_not_found_around_the_loop_is_a_reason_too(fact: str, rules: str, why: str) -> None:
    seen, unseen = (
        dict.fromkeys(rules.split(), "") | {one.rule: one.reason for one in diagnose(recording).silent}
        for recording in (heard(SEEN), heard({**SEEN, fact: None}))
    )
    for name in rules.split():
        assert not seen[name] and unseen[name].startswith(why)


def heard(setup: dict[str, Any]) -> Recording:
    """A loop on a GPU of which all was read."""
    return dataclasses.replace(on_gpu(setup=setup).recording(), chores=())


@pytest.mark.parametrize("rule", ["full-precision", "tf32-off", "channels-first-convolutions"])
def test_a_card_of_unknown_make_is_not_judged(rule: str) -> None:
    nameless = heard({**SEEN, "devices": (DeviceSetup(0, "NVIDIA T4"),)})
    assert Silence(rule, "the GPU's capabilities were not read") in diagnose(nameless).silent


def test_a_gpu_that_the_loop_does_not_use_is_not_denied() -> None:
    vitals = Vitals(setup=Setup(devices=(DeviceSetup(0, "NVIDIA T4"),)))
    launch = next(cause for cause in CAUSES if cause.name == "small-batch")
    assert reason(launch, vitals) == "the loop does not train on the GPU"


def test_reasons_stand_failures_first_then_by_how_many_share_them() -> None:
    silent = (Silence("a", "x"), Silence("b", "y"), Silence("c", "y"), Silence("d", "failed: KeyError: 'k'"))
    assert list(by_reason(silent).items()) == [("failed: KeyError: 'k'", ("d",)), ("y", ("b", "c")), ("x", ("a",))]


# ---- what fails ------------------------------------------------------------------------------------------------------


def _raises(vitals: Vitals) -> Finding | None:
    raise ZeroDivisionError("division by zero")


def _with_a_rule_that_raises(patch: pytest.MonkeyPatch, cause: str) -> None:
    failing = BY_CAUSE[cause]
    rules = tuple(dataclasses.replace(one, check=_raises) if one is failing else one for one in RULES)
    patch.setattr(module, "RULES", rules)


def test_a_rule_that_raises_takes_itself_off_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = Loop(wait=40.0, fetch_cpu=1.0, consumer_cpu=10.0, cores=2.0).recording()
    before = diagnose(recording)
    _with_a_rule_that_raises(monkeypatch, "slow-python")
    now = diagnose(recording)
    assert Silence("slow-python", "failed: ZeroDivisionError: division by zero") in now.silent
    assert [one.rule for one in now.findings] == [one.rule for one in before.findings]
    assert "failed: ZeroDivisionError: division by zero: " in " ".join(str(now).split())


def test_a_rule_that_raises_on_a_run_without_steps_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    _with_a_rule_that_raises(monkeypatch, "out-of-memory")
    assert [one.rule for one in diagnose(Recording(Steps.of(wall_s=[]))).silent] == ["out-of-memory"]


def test_a_diagnosis_that_fails_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "measure", _raises)
    found, recording = judged(Loop().recording())
    assert found is None
    assert recording.notes[-1].startswith("The diagnosis failed (ZeroDivisionError: division by zero)")
