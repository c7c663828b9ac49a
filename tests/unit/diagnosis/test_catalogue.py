"""The shelf of rules is complete: one file is one rule, a cause has a page, and no rule asks another."""

from __future__ import annotations

import ast
import dataclasses

import pytest

from gpu_doctor.diagnosis.rules import CAUSES, RULES
from gpu_doctor.diagnosis.rules.page import IN_CODE, explain, paragraphs
from gpu_doctor.diagnosis.rules.rule import Cause, Rule
from gpu_doctor.diagnosis.vitals.fields import Vitals
from tests.support.repository import ROOT

SHELF = ROOT / "gpu_doctor" / "diagnosis" / "rules"
TESTS = ROOT / "tests" / "unit" / "diagnosis" / "rules"
NOT_RULES = {"__init__", "rule", "evidence", "prescriptions", "half_precision", "gpu_pace", "page"}
NOT_RULES |= {"plugins"}
FAMILIES = {"input", "transfer", "host", "compute", "memory", "hardware", "distributed"}
HEADINGS = ("What it means", "Why it costs you", "What to try", IN_CODE, "When to leave it")

FILES = {path.stem.replace("_", "-"): path for path in sorted(SHELF.rglob("*.py")) if path.stem not in NOT_RULES}
NAMES = {cause.name for cause in CAUSES}
each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
each_cause = pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.name)


def test_every_file_is_an_entry_and_every_entry_a_file() -> None:
    assert set(FILES) == {rule.name for rule in RULES}
    assert len(CAUSES) == len(NAMES) and len(RULES) == len(FILES)


def test_tests_by_hand_are_of_a_rule() -> None:
    """Every cause's loops stand in `tests/support/rule_loops/`; what no table can say, in the file of its rule."""
    tests = {path.stem.removeprefix("test_").replace("_", "-") for path in TESTS.glob("test_*.py")}
    assert tests <= set(FILES)


@each_cause
def test_every_page_has_its_headings_in_order(cause: Cause) -> None:
    lines = cause.page.splitlines()
    places = [lines.index(heading) for heading in HEADINGS]
    assert places == sorted(places)
    for begin, end in zip(places, [*places[1:], len(lines)], strict=True):
        text = [one for one in lines[begin + 1 : end] if one.strip()]
        assert text, f"{lines[begin]} is empty"
        assert all(one.startswith("    ") for one in text)


@each_cause
def test_every_page_shows_sick_and_cured_code_that_compiles_or_a_command(cause: Cause) -> None:
    (code,) = (part.text for part in paragraphs(cause.page) if part.code)
    lines = code.splitlines()
    assert len(lines) <= 12 and max(map(len, lines)) <= 90, "In code: at most 12 lines of 90 characters"
    if code.startswith("$ "):
        return
    assert sum(line.startswith("# sick") for line in lines) == sum(line.startswith("# cured") for line in lines) == 1
    assert lines[0].startswith("# sick")
    for half in code.split("# cured"):
        assert ast.parse(half[half.index("\n") :]).body


@each_cause
def test_the_first_line_is_one_sentence_for_the_table(cause: Cause) -> None:
    assert cause.summary.endswith(".") and len(cause.summary) <= 120 and "|" not in cause.summary


@each_cause
def test_what_a_cause_needs_is_a_vital(cause: Cause) -> None:
    found = {name for kind in Vitals.__mro__ for name, one in vars(kind).items() if isinstance(one, property)}
    vitals = {field.name for field in dataclasses.fields(Vitals)} | found
    assert cause.needs and {*cause.needs, *(cause.cpu_needs or ())} <= vitals


@each_rule
def test_the_folder_is_the_family(rule: Rule) -> None:
    assert rule.family in FAMILIES and FILES[rule.name].parent.name == rule.family
    assert {cause.family for cause in rule.causes} == {rule.family}


@each_rule
def test_no_rule_asks_another(rule: Rule) -> None:
    own = FILES[rule.name]
    others = [other for other in FILES.values() if other != own and not other.name.startswith("__")]
    text = own.read_text(encoding="utf-8")
    assert not [path.name for path in others if f"rules.{path.parent.name}.{path.stem} import" in text]
    assert not [path.name for path in others if f"rules.{path.parent.name} import {path.stem}\n" in text]


@each_rule
def test_vitals_that_hold_nothing_are_no_finding(rule: Rule) -> None:
    found = rule.check(Vitals())
    assert not found


@each_cause
def test_every_page_is_explained(cause: Cause) -> None:
    assert cause.summary in str(explain(cause.name))
