"""A live verdict that holds still: over two causes of like cost, and over one on its bar."""

from __future__ import annotations

import dataclasses

from gpu_doctor.diagnosis import Diagnosis
from gpu_doctor.diagnosis.rules.rule import Finding
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.notebook.live_verdict import Steady


def told(**costs: float) -> Diagnosis:
    """A diagnosis that found these rules at these costs."""
    findings = tuple(Finding(rule, f"{rule}.", cost) for rule, cost in sorted(costs.items(), key=lambda one: -one[1]))
    return Diagnosis("input", findings[0].headline if findings else "nothing", findings, (), Vitals())


def test_two_causes_of_like_cost_do_not_flicker() -> None:
    steady = Steady()
    shown = [
        steady.shown(told(a=0.30 + wobble, b=0.31)).findings[0].rule for wobble in (0.02, -0.01, 0.02, -0.01, 0.02)
    ]
    assert shown == ["a"] * 5


def test_a_lead_that_lasts_is_shown_after_a_while() -> None:
    steady = Steady()
    shown = [steady.shown(told(**costs)).findings[0].rule for costs in ({"a": 0.3}, *({"a": 0.3, "b": 0.33},) * 4)]
    assert shown == ["a", "a", "a", "b", "b"]


def test_a_clear_lead_is_shown_at_once() -> None:
    steady = Steady()
    steady.shown(told(a=0.3))
    now = steady.shown(told(a=0.3, b=0.6))
    assert now.findings[0].rule == "b"


def test_a_finding_that_is_gone_is_held_for_a_while_only() -> None:
    steady = Steady()
    steady.shown(told(a=0.3))
    looks = [steady.shown(told(b=0.1)) for _ in range(3)]
    assert [one.findings[0].rule for one in looks] == ["a", "a", "b"]
    assert [one.verdict for one in looks] == ["a.", "a.", "b."]
    assert [steady.shown(told()).verdict for _ in range(3)][-1] == "nothing"


def test_what_comes_back_is_held_longer_but_not_for_ever() -> None:
    steady = Steady()
    held = []
    for _ in range(6):
        steady.shown(told(a=0.051))
        looks = iter(range(100))
        held.append(next(look for look in looks if not steady.shown(told()).findings))
    assert held == [2, 5, 11, 23, 23, 23]


def test_what_another_finding_explains_is_not_held_beside_it() -> None:
    steady = Steady()
    steady.shown(told(**{"launch-bound": 0.3}))
    now = steady.shown(told(**{"not-compiled": 0.31}))
    assert [one.rule for one in now.findings] == ["not-compiled"]


def test_what_is_held_is_early_as_long_as_the_diagnosis_is() -> None:
    steady = Steady()
    first = told(a=0.3)
    steady.shown(dataclasses.replace(first, findings=(dataclasses.replace(first.findings[0], early=True),), early=True))
    assert not steady.shown(told()).findings[0].early


def of_class(bottleneck: str, **costs: float) -> Diagnosis:
    """A diagnosis of this class."""
    return dataclasses.replace(told(**costs), bottleneck=bottleneck)


def test_the_class_is_held_with_the_finding() -> None:
    steady = Steady()
    steady.shown(of_class("host", a=0.2))
    looks = [steady.shown(of_class("compute")) for _ in range(3)]
    assert [one.bottleneck for one in looks] == ["host", "host", "compute"]
    assert [bool(one.findings) for one in looks] == [True, True, False]


def test_a_class_on_its_bar_does_not_flicker() -> None:
    steady = Steady()
    shown = [steady.shown(of_class(name, a=0.2)).bottleneck for name in ("input", "compute") * 5]
    assert shown == ["input"] * 10
    assert [steady.shown(of_class("compute", a=0.2)).bottleneck for _ in range(3)][-1] == "compute"


def test_the_class_is_known_as_soon_as_it_can_be_and_goes_with_a_new_leader() -> None:
    steady = Steady()
    assert steady.shown(of_class("unknown")).bottleneck == "unknown"
    assert steady.shown(of_class("input", a=0.2)).bottleneck == "input"
    assert steady.shown(of_class("host", a=0.2, b=0.6)).bottleneck == "host"


def test_a_hint_is_not_held_before_what_costs() -> None:
    steady = Steady()
    hint = Finding("h", "H.", None, kind="hint")
    steady.shown(Diagnosis("compute", "It computes. H.", (), (), Vitals(), hints=(hint,)))
    dear = Finding("a", "A.", 0.06)
    assert steady.shown(Diagnosis("input", "A.", (dear,), (), Vitals(), hints=(hint,))).verdict == "A."


def test_a_risk_is_not_held_before_what_costs() -> None:
    steady = Steady()
    risk = Finding("r", "R.", None, risk="It will end.", kind="hint")
    steady.shown(Diagnosis("compute", "A risk: R.", (), (), Vitals(), hints=(risk,)))
    dear = Finding("a", "A.", 0.06)
    assert steady.shown(Diagnosis("input", "A.", (dear,), (), Vitals(), hints=(risk,))).verdict == "A."


def test_what_is_held_keeps_its_own_verdict_and_figures() -> None:
    steady = Steady()
    steady.shown(told(a=0.3))
    now = steady.shown(told(a=0.29, b=0.31))
    assert now.verdict == "a." and [one.rule for one in now.findings] == ["a", "b"]
    assert now.findings[0].cost_share == 0.29


def test_what_is_gone_is_given_up_after_half_a_minute_where_diagnoses_are_rare() -> None:
    steady = Steady()
    for came in range(4):
        steady.shown(told(a=0.051), 1000.0 * came)
        looks = [bool(steady.shown(told(), 1000.0 * came + 10.0 * look).findings) for look in range(1, 8)]
        assert looks == [True, True] + [False] * 5, "three looks, and no more seconds than so"
