"""The shelf of rules is complete: one file is one entry, one test and one page, and everything a rule names exists."""

from __future__ import annotations

import dataclasses

import pytest

from gpu_doctor.diagnosis.rules import RULES
from gpu_doctor.diagnosis.rules.page import explain
from gpu_doctor.diagnosis.rules.rule import Rule
from gpu_doctor.diagnosis.vitals.fields import Vitals
from tests.support.repository import ROOT

SHELF = ROOT / "gpu_doctor" / "diagnosis" / "rules"
TESTS = ROOT / "tests" / "unit" / "diagnosis" / "rules"
NOT_RULES = {"__init__", "rule", "evidence", "prescriptions", "half_precision", "gpu_idle", "gpu_pace", "page"}
NOT_RULES |= {"passes", "plugins", "python_pace"}
FAMILIES = {"input", "transfer", "host", "compute", "memory", "hardware", "distributed"}
HEADINGS = ("What it means", "Why it costs you", "What to try", "When to leave it")

FILES = {path.stem.replace("_", "-"): path for path in sorted(SHELF.rglob("*.py")) if path.stem not in NOT_RULES}
NAMES = {rule.name for rule in RULES}
each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)


def test_every_file_is_an_entry_and_every_entry_a_file() -> None:
    assert set(FILES) == NAMES
    assert len(RULES) == len(NAMES)


def test_every_rule_has_its_test_and_none_is_left_of_a_rule_that_is_gone() -> None:
    tests = {path.stem.removeprefix("test_").replace("_", "-") for path in TESTS.glob("test_*.py")}
    assert tests == NAMES


@each_rule
def test_every_page_has_its_four_headings_in_order(rule: Rule) -> None:
    lines = rule.page.splitlines()
    places = [lines.index(heading) for heading in HEADINGS]
    assert places == sorted(places)
    for begin, end in zip(places, [*places[1:], len(lines)], strict=True):
        text = [one for one in lines[begin + 1 : end] if one.strip()]
        assert text, f"{lines[begin]} is empty"
        assert all(one.startswith("    ") for one in text)


@each_rule
def test_the_first_line_is_one_sentence_for_the_table(rule: Rule) -> None:
    assert rule.summary.endswith(".") and len(rule.summary) <= 120 and "|" not in rule.summary


@each_rule
def test_what_a_rule_needs_is_a_vital(rule: Rule) -> None:
    found = {name for kind in Vitals.__mro__ for name, one in vars(kind).items() if isinstance(one, property)}
    vitals = {field.name for field in dataclasses.fields(Vitals)} | found
    assert rule.needs and {*rule.needs, *(rule.cpu_needs or ())} <= vitals


@each_rule
def test_what_a_rule_excludes_exists(rule: Rule) -> None:
    assert set(rule.excludes) <= NAMES - {rule.name}


@each_rule
def test_the_folder_is_the_family(rule: Rule) -> None:
    assert rule.family in FAMILIES and FILES[rule.name].parent.name == rule.family


@each_rule
def test_no_figure_is_a_rule_of_the_vitals_by_default(rule: Rule) -> None:
    """A rule asked about vitals that hold nothing finds nothing and does not fail."""
    assert rule.finds(Vitals()) is None


@each_rule
def test_every_page_is_explained(rule: Rule) -> None:
    assert rule.summary in str(explain(rule.name))
