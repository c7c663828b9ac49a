"""A second chance is given to some folders' tests only, is said with both outcomes, and is not given twice in a row."""

from __future__ import annotations

import json

import pytest

from tests.support import outcomes
from tests.support.repository import ROOT

pytestmark = pytest.mark.core

pytest_plugins = "pytester"

FLAKY = """
from pathlib import Path
SEEN = Path(__file__).with_suffix(".seen")
def test_noise():
    seen = SEEN.exists()
    SEEN.touch()
    assert seen
def test_well():
    pass
"""
CONFTEST = """
from tests.conftest import pytest_collection_modifyitems as pytest_collection_modifyitems
from tests.support.outcomes import Outcomes
from pathlib import Path
def pytest_configure(config):
    config.pluginmanager.register(Outcomes(config, Path(__file__).with_name("kept.json")))
"""


@pytest.mark.parametrize(("folder", "passes"), [("real_clock", True), ("browser", True), ("unit", False)])
def test_only_some_folders_have_a_second_chance_and_it_is_said(
    folder: str, passes: bool, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider\n")
    (pytester.path / "conftest.py").write_text(CONFTEST)
    where = pytester.path / "tests" / folder
    where.mkdir(parents=True)
    (where / "test_flaky.py").write_text(FLAKY)
    report = pytester.path / "report.json"
    monkeypatch.setenv(outcomes.REPORT, str(report))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    result = pytester.runpytest_subprocess("-p", "no:timeout")
    assert (result.ret == 0) is passes
    name = f"tests/{folder}/test_flaky.py::test_noise"
    counts = json.loads(report.read_text())
    assert counts["passed"] == (2 if passes else 1)
    assert list(counts["again"]) == ([name] if passes else [])
    if not passes:
        return
    result.stdout.fnmatch_lines([f"ran again: {name}: first *then passed"])
    (where / "test_flaky.seen").unlink()
    again = pytester.runpytest_subprocess("-p", "no:timeout")
    assert again.ret == 1
    again.stdout.fnmatch_lines([f"FAILED RUN: {name} needed a second chance in two runs in a row."])
