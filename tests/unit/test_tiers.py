"""The tests' own rules: unit tests are instant, no part is forgotten, and a second chance is never silent."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import run
from tests.support import outcomes
from tests.support.repository import ROOT

UNIT = sorted((ROOT / "tests" / "unit").rglob("*.py"))
CLOCKS = {
    f"{name}{unit}"
    for name in ("perf_counter", "monotonic", "process_time", "thread_time", "time")
    for unit in ("", "_ns")
} | {"sleep"}


def clocks_read(text: str) -> list[str]:
    """Calls of the module `time`, and imports out of it, that are there to wait or to measure."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            found += [one.name for one in node.names if one.name in CLOCKS]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in {f"time.{name}" for name in CLOCKS}:
            found.append(ast.unparse(node.func).removeprefix("time."))
    return found


@pytest.mark.parametrize("path", UNIT, ids=lambda path: path.relative_to(ROOT / "tests").as_posix())
def test_unit_tests_neither_sleep_nor_read_a_clock(path: Path) -> None:
    assert clocks_read(path.read_text(encoding="utf-8")) == []


def test_a_clock_is_found_however_it_is_called() -> None:
    assert clocks_read("import time\ntime.sleep(1)") == ["sleep"]
    assert clocks_read("from time import perf_counter") == ["perf_counter"]
    assert clocks_read("import time\ntime.strftime('%Y')\nclock.time()") == []


def chosen(words: tuple[str, ...]) -> set[Path]:
    """The test files that a part's pytest is given."""
    named = [ROOT / word for word in words if word.startswith("tests/")]
    left_out = [ROOT / word.removeprefix("--ignore=") for word in words if word.startswith("--ignore=")]
    files = {file for one in named for file in ([one] if one.suffix else one.rglob("test_*.py"))}
    return {file for file in files if not any(one == file or one in file.parents for one in left_out)}


def test_every_test_file_is_in_one_part_of_the_whole() -> None:
    parts = [chosen(words) for name in run.TIERS["all"] for words in run.PARTS[name].commands if "pytest" in words]
    in_parts = [file for part in parts for file in part]
    there = {file for file in (ROOT / "tests").rglob("test_*.py") if "gpu" not in file.parts}
    assert sorted(in_parts) == sorted(there)


def test_a_tier_is_made_of_parts_and_the_larger_one_contains_the_smaller() -> None:
    assert set(run.TIERS["quick"]) < set(run.TIERS["test"])
    assert {name for tier in run.TIERS.values() for name in tier} == set(run.PARTS)


def told(part: str = "core", status: str = "passed", at: str = "abc", **again: list[str]) -> run.Outcome:
    return run.Outcome(part, at, status, 60.0, {"passed": 3, "failed": 0}, again)


def test_the_end_says_who_ran_again_and_fails_for_more_than_two() -> None:
    text, good = run.told_at_the_end([told(a=["Error: slow", "passed"], b=["Error", "passed"]), told("unit")])
    assert good
    assert "ran again: a: first 'Error: slow', then passed" in text
    assert text.splitlines()[-1] == "6 passed, 0 failed, 0 skipped, 0 inconclusive"
    text, good = run.told_at_the_end([told(a=["x", "passed"], b=["x", "passed"]), told("scene", c=["x", "passed"])])
    assert not good and "3 tests needed a second chance; 2 may." in text
    assert not run.told_at_the_end([told(status="failed")])[1]


def test_what_has_passed_on_a_commit_counts_only_without_changes_beside_it() -> None:
    assert run.passed_on(told(), "abc")
    assert not run.passed_on(told(), "other")
    assert not run.passed_on(told(status="failed"), "abc")
    assert not run.passed_on(told(at="abc changed"), "abc changed")


A, B, C = (f"tests/browser/test_{one}.py::test" for one in "abc")


def test_a_run_fails_for_many_second_chances_for_the_same_one_twice_and_for_what_could_not_be_judged() -> None:
    assert outcomes.troubles({A: "x", B: "x"}, {}, inconclusive=1, tests=20) == []
    assert outcomes.troubles({A: "x", B: "x", C: "x"}, {}, 0, 20) == ["3 tests needed a second chance; 2 may."]
    assert outcomes.troubles({A: "x"}, {A: "y"}, 0, 20) == [f"{A} needed a second chance in two runs in a row."]
    assert "2 of 20 tests were inconclusive" in outcomes.troubles({}, {}, 2, 20)[0]
    assert "which no test of its folder may" in outcomes.troubles({"tests/unit/test_a.py::test": "x"}, {}, 0, 20)[0]


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[str]]:
    """Calls `tests.run` over two parts that only say that they ran; returns those that did, and what was kept."""
    ran: list[str] = []

    def ended(words: list[str], environment: dict[str, str]) -> int:
        ran.append(words[0])
        return int(words[0] == "broken")

    def called(*words: str, at: str = "abc") -> list[str]:
        ran.clear()
        monkeypatch.setattr(run, "commit", lambda: at)
        code = run.main(words)
        assert code == int("broken" in ran)
        return ran.copy()

    monkeypatch.setattr(run, "_ended", ended)
    monkeypatch.setattr(run, "KEPT", tmp_path / "parts.json")
    monkeypatch.setattr(run, "PARTS", {one: run.Part(one, "", ((one, "pytest"),)) for one in ("good", "broken")})
    monkeypatch.setattr(run, "TIERS", {"all": ("good", "broken")})
    return called


def test_the_whole_goes_on_where_it_was_cut_off(parts: Callable[..., list[str]]) -> None:
    assert parts("all") == ["good", "broken"]
    assert parts("all") == ["broken"], "what has passed on this commit is not run again"
    assert parts("all", "--again") == ["good", "broken"]
    assert parts("good") == ["good"], "what is asked for by name runs"
    assert parts("all", at="def") == ["good", "broken"], "another commit"


def test_a_part_of_a_part_is_no_pass(parts: Callable[..., list[str]]) -> None:
    parts("good", "-k", "something")
    assert parts("all") == ["good", "broken"]


def test_where_git_cannot_say_nothing_counts_as_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_git", lambda *words: "")
    assert run.commit() == "unknown changed"
    monkeypatch.undo()
    monkeypatch.setenv("PATH", "")
    assert run.commit() == "unknown changed"
