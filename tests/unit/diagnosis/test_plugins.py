"""Rules of other packages: asked beside ours, named by their package, and what is wrong with one is a sentence."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

import pytest

from gpu_doctor.diagnosis import RULES, Diagnosis, Finding, Vitals, diagnose, explain
from gpu_doctor.diagnosis.rules import every_rule
from gpu_doctor.diagnosis.rules.plugins import GROUP, OPEN_VITALS, Plugins, plugins
from tests.support.recordings import Loop

LOGGING = Loop(other=10.0)
Offer = Callable[..., None]


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Offer]:
    """Puts a module on the path as the rule `slow_decoder` of a package `acme_rules`; keywords are its members."""
    entries: list[EntryPoint] = []

    def offered(name: str = "slow_decoder", **members: Any) -> None:
        module = ModuleType(f"acme_rules.{name}", "Decoding is slow.\n\nWhat it means\n    It is.")
        vars(module).update({"VERSION": 1, "NEEDS": ("other_share",), "check": found(0.4)} | members)
        monkeypatch.setitem(sys.modules, "acme_rules", ModuleType("acme_rules"))
        monkeypatch.setitem(sys.modules, module.__name__, module)
        entries.append(EntryPoint(name, module.__name__, GROUP))
        plugins.cache_clear()

    shelf = sys.modules["gpu_doctor.diagnosis.rules.plugins"]  # the package has a function of that name
    monkeypatch.setattr(shelf, "entry_points", lambda group: [one for one in entries if one.group == group])
    yield offered
    plugins.cache_clear()


def found(cost: float) -> Callable[[Vitals], Finding | None]:
    return lambda vitals: Finding("whatever", "Decoding takes 40 % of the time.", cost)


def reason(told: Diagnosis, rule: str) -> str:
    return next(one.reason for one in told.silent if one.rule == rule)


def test_what_is_open_is_a_field_of_vitals() -> None:
    fields = {one.name for one in dataclasses.fields(Vitals)}
    assert [name for name in OPEN_VITALS if name not in fields and not hasattr(Vitals, name)] == []
    assert len(OPEN_VITALS) == len(set(OPEN_VITALS))


def test_no_package_means_our_rules_alone() -> None:
    assert plugins() == Plugins()
    assert every_rule() == RULES


def test_a_rule_of_another_package_is_asked_beside_ours_and_named_by_its_package(offer: Offer) -> None:
    offer()
    told = diagnose(LOGGING.recording())
    assert [one.rule for one in told.findings] == ["slow-python", "acme-rules.slow-decoder/slow-decoder"]
    assert not told.notes
    assert str(explain("acme-rules.slow-decoder/slow_decoder")).startswith(
        "acme-rules.slow-decoder/slow-decoder (other)"
    )


def test_it_is_dropped_below_the_bar_and_silent_where_its_vital_was_not_measured(offer: Offer) -> None:
    offer(check=found(0.04))
    offer("needs_batches", NEEDS=("batch_bytes",), check=found(0.9))
    told = diagnose(dataclasses.replace(LOGGING.vitals(), batch_bytes=None))
    assert [one.rule for one in told.findings] == ["slow-python"]
    assert reason(told, "acme-rules.needs-batches/needs-batches") == "batch bytes was not measured"


def test_it_cannot_stand_before_everything_else(offer: Offer) -> None:
    offer(check=lambda vitals: Finding("a", "Small.", 0.06, first=True))
    assert diagnose(LOGGING.recording()).findings[0].rule == "slow-python"


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (lambda vitals: 1 / 0, "failed: ZeroDivisionError"),
        (lambda vitals: sys.exit(3), "failed: SystemExit"),
        (lambda vitals: "slow", "not a Finding"),
        (found(1.4), "not a share from 0 to 1"),
        (found(float("nan")), "not a share from 0 to 1"),
        (lambda vitals: Finding("a", "b", 0.4, evidence=(3,)), "failed: "),  # type: ignore[arg-type]
    ],
)
def test_a_check_that_fails_is_silent_and_ours_go_on(offer: Offer, check: Callable[[Vitals], Any], said: str) -> None:
    offer(check=check)
    told = diagnose(LOGGING.recording())
    assert [one.rule for one in told.findings] == ["slow-python"]
    assert said in reason(told, "acme-rules.slow-decoder/slow-decoder")


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"VERSION": 2}, "it says VERSION = 2, and this is version 1"),
        ({"NEEDS": ("other_share", "gpu_gap_share")}, "it needs gpu_gap_share, which is not open"),
        ({"CPU_NEEDS": ("memory_total_bytes",)}, "it needs memory_total_bytes"),
    ],
)
def test_a_module_that_cannot_be_taken_is_a_note_and_the_others_are_taken(
    offer: Offer, members: dict[str, Any], said: str
) -> None:
    offer("wrong", **members)
    offer("right")
    told = diagnose(LOGGING.recording())
    assert "acme-rules.right/right" in [one.rule for one in told.findings]
    (note,) = told.notes
    assert note.startswith("The rule 'wrong' of acme_rules.wrong was left out (") and said in note


def test_a_package_that_is_broken_is_a_note(offer: Offer, monkeypatch: pytest.MonkeyPatch) -> None:
    offer()
    monkeypatch.delitem(sys.modules, "acme_rules.slow_decoder")
    (note,) = diagnose(LOGGING.recording()).notes
    assert "ModuleNotFoundError" in note
    assert every_rule() == RULES
