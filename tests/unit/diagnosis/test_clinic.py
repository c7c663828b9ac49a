"""The clinic's own tests: its patients are well-formed, every cell runs, and those with wide margins are judged right.

How right the doctor is on all of them is a benchmark (`make clinic`), not a test: timings on shared cores are noisy.
"""

from __future__ import annotations

import pytest

from gpu_doctor.diagnosis.rules import CAUSES
from gpu_doctor.diagnosis.rules.rule import Rule
from tests.support.clinic import score
from tests.support.clinic.bare import known
from tests.support.clinic.cell import Cell, Recorded, pasted
from tests.support.clinic.physician import Visit, examine
from tests.support.clinic.thirds import HELD_BACK, TUNING, may_be_foretold, third
from tests.support.clinic.ward import FAMILIES, PATIENTS

CLASSES = {"input", "transfer", "host", "compute", "memory", "communication", "unknown"}


def test_there_are_enough_patients_and_enough_well_ones() -> None:
    assert len(PATIENTS) >= 40
    assert sum(one.healthy for one in PATIENTS) >= 12
    assert len({one.name for one in PATIENTS}) == len(PATIENTS)


@pytest.mark.parametrize("rule", CAUSES, ids=lambda one: one.name)
def test_each_rule_has_a_patient_that_it_names_first(rule: Rule) -> None:
    known = any(rule.name in one.top for one in PATIENTS)
    assert known, f"no patient of tests/support/clinic/ has {rule.name} in `top`: write one"


@pytest.mark.parametrize("patient", PATIENTS, ids=lambda one: one.name)
def test_a_patient_says_what_is_known_of_it(patient: Cell | Recorded) -> None:
    assert patient.klass in CLASSES
    assert patient.healthy != bool(patient.top), "either something is wrong with it, or it is well"
    names = {rule.name for rule in CAUSES}
    assert set(patient.top) & names or patient.healthy, f"no rule named {patient.top} is there yet"
    if isinstance(patient, Cell):
        for before, cell in (patient.notebook(), patient.notebook(patient.cured, patient.cure)):
            compile(before, "<above>", "exec")
            compile(cell, "<cell>", "exec")
        assert not (patient.healthy and (patient.cured or patient.cure))


@pytest.mark.parametrize("patient", [one for one in PATIENTS if isinstance(one, Recorded)], ids=lambda one: one.name)
def test_a_recorded_patient_is_judged_right(patient: Recorded) -> None:
    visit = examine(patient, "device")
    assert visit.error == ""
    assert visit.class_right, score.line(visit)
    assert visit.rule_right, score.line(visit)


def test_settings_are_pasted_where_a_person_would_write_them() -> None:
    source = "a = DataLoader(data, batch_size=4, num_workers=2)\nb = torch.utils.data.DataLoader(data)\n"
    assert pasted(source, {"num_workers": 6, "persistent_workers": True}) == (
        "a = DataLoader(data, batch_size=4, num_workers=6, persistent_workers=True)\n"
        "b = torch.utils.data.DataLoader(data, num_workers=6, persistent_workers=True)"
    )
    assert pasted("opt = torch.optim.AdamW(p, foreach=False)", {"fused_optimizer": True}).endswith("(p, fused=True)")
    assert "set_num_threads(2)" in pasted("train()", {"threads": 2})
    assert pasted("torch.set_num_threads(16)", {"threads": 2}) == "torch.set_num_threads(2)"
    with pytest.raises(ValueError, match="no place for num_workers"):
        pasted("train()", {"num_workers": 2})
    apart = Cell("a", "compute", before="opt = torch.optim.SGD(p)", sick="train()")
    before, cell = apart.notebook(settings={"fused_optimizer": True, "threads": 2})
    assert before.endswith("(p, fused=True)") and "set_num_threads(2)" in cell


def test_a_visit_is_judged_by_its_first_finding_and_a_healthy_one_by_its_dearest() -> None:
    sick = Visit("a", "input", "input", told_class="input", wanted=("x",), findings=[("x", 0.5), ("y", 0.4)])
    assert sick.class_right and sick.rule_right
    sick.predicted, sick.real = 2.4, 2.0
    assert sick.error_share == pytest.approx(0.2)
    sick.findings.reverse()
    assert not sick.rule_right
    well = Visit("b", "healthy", "compute", told_class="compute", healthy=True, findings=[("y", 0.09)])
    assert well.rule_right
    assert score.passed([well]) and not score.passed([well, sick])
    well.findings = [("y", 0.11)]
    assert not well.rule_right
    assert "1 of 2" not in score.totals([sick, well]).splitlines()[2]


def test_a_gain_that_wanders_is_timed_again_until_it_is_known() -> None:
    assert known([1.38], rounds=1)
    assert not known([2.0, 2.02])
    assert known([2.0, 2.02, 1.99])
    assert not known([1.38, 1.29, 1.95])
    assert known([1.38, 1.29, 1.95, 1.4, 1.37, 1.41, 1.4, 1.38])
    assert known([1.0, 2.0, 3.0] * 3)  # not to be known here: enough is enough


def test_a_third_of_those_with_a_gain_to_foretell_is_held_back_and_the_rest_is_for_tuning() -> None:
    held, rest = (
        {family: third(name, family, ones, seed=20) for family, ones in FAMILIES.items()}
        for name in (HELD_BACK, TUNING)
    )
    for family, ones in FAMILIES.items():
        foretold = [one for one in ones if may_be_foretold(one)]
        assert {one.name for one in foretold} == {one.name for one in (*held[family], *rest[family])}
        assert len(held[family]) + len(rest[family]) == len(foretold)
        assert len(foretold) // 3 <= len(held[family]) <= -(-len(foretold) // 3)
    assert 20 <= sum(map(len, held.values())) <= 35
    other = {family: third(HELD_BACK, family, ones, seed=21) for family, ones in FAMILIES.items()}
    assert other != held
    # The order of a family's list changes nothing.
    back = {family: third(HELD_BACK, family, ones[::-1], seed=20)[::-1] for family, ones in FAMILIES.items()}
    assert back == held


def test_the_ends_are_scored_by_the_truth_between_them_and_by_their_width() -> None:
    def visit(low: float | None, high: float | None, real: float, trial: float | None = None) -> Visit:
        found = Visit("a", "input", "input", told_class="input", wanted=("x",), findings=[("x", 0.5)], predicted=1.5)
        found.real, found.trial, found.predicted_low, found.predicted_high = real, trial, low, high
        return found

    said = score.totals([visit(1.0, 1.4, 1.3), visit(1.2, 1.8, 1.9, trial=1.3), visit(None, None, 1.5)])
    assert "gain inside band 1 of 2 (50 %)" in said and "median high/low  1.45" in said
    assert "of trials 20 %   1 of 1" in said
    again = Visit.from_plain(visit(1.2, 1.8, 1.9, trial=1.3).plain())
    assert again == visit(1.2, 1.8, 1.9, trial=1.3) and "BAND" in score.line(again)
