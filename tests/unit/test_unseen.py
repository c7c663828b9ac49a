"""Unseen programs judged: what is named on a healthy one is right only where its cure, tried, gives a lot."""

from __future__ import annotations

import json

import pytest

from tests.support.repository import ROOT
from tests.support.unseen import SICK, Judged, patched

TRUTH = {"class": "compute", "rules": [], "why": ""}


def healthy(*named: tuple[str, float | None], klass: str = "compute") -> Judged:
    return Judged("vision", TRUTH, {"class": klass, "findings": []}, None, named=named)


@pytest.mark.parametrize(
    ("named", "right"),
    [
        ((), True),
        ((("full-precision", SICK),), True),
        ((("full-precision", 1.05),), False),
        ((("slow-python", None),), False),
        ((("full-precision", 2.0), ("slow-python", None)), False),
    ],
)
def test_what_is_named_on_a_healthy_program(named: tuple[tuple[str, float | None], ...], right: bool) -> None:
    one = healthy(*named)
    assert one.right is right
    assert one.row()[-1].startswith("right" if right else "WRONG")


def test_its_class_is_judged_all_the_same() -> None:
    assert not healthy(("full-precision", 2.0), klass="transfer").right


def test_a_sick_one_is_judged_by_its_first_finding() -> None:
    told = {"class": "input", "findings": [{"rule": "slow-getitem", "price": 0.05, "gain": None}]}
    sick = Judged("vision", {"class": "input|host", "rules": ["slow-getitem"]}, told, 2.0)
    assert sick.right and sick.row()[-1] == "right"
    assert not Judged("vision", {"class": "compute", "rules": ["slow-getitem"]}, told, 2.0).right
    assert not Judged("vision", {"class": "input", "rules": ["slow-collate"]}, told, 2.0).right
    assert not Judged("vision", {"class": "input", "rules": ["slow-getitem"]}, {**told, "findings": []}, 2.0).right


def test_every_cure_fits_its_program_and_changes_it() -> None:
    folder = ROOT / "benchmarks" / "unseen" / "f"
    truths = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    assert {path.stem for path in folder.glob("*.py")} == set(truths)
    assert {path.stem for path in folder.glob("*.patch")} == {name for name, one in truths.items() if one["rules"]}
    for cure in folder.glob("*.patch"):
        text = cure.with_suffix(".py").read_text(encoding="utf-8")
        cured = patched(text, cure.read_text(encoding="utf-8"))
        assert cured != text
        compile(cured, cure.stem, "exec")


def test_a_diff_is_applied_where_it_says() -> None:
    diff = "--- a/x\n+++ b/x\n@@ -2,2 +2,2 @@\n b\n-c\n+C\n@@ -5,1 +5,2 @@\n e\n+f\n"
    assert patched("a\nb\nc\nd\ne\ng\n", diff) == "a\nb\nC\nd\ne\nf\ng\n"
