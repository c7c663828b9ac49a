"""What is verified is what is pasted: the last trial runs the cell's own text with the settings written in."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.testing.globalipapp import start_ipython
from IPython.utils.capture import capture_output

import gpu_doctor
from gpu_doctor.cell import Fix, FixedCell
from gpu_doctor.notebook.cell_runner import Cell
from gpu_doctor.report.plan import plan_html, plan_text
from gpu_doctor.trials.candidates import Move
from gpu_doctor.trials.case import Case
from tests.support.faster import make_trials_faster
from tests.support.patched_cells import LOOP, PRELUDE

LOADER = "loader = DataLoader(ds, batch_size=16, shuffle=True)\n"
CELL = LOADER + LOOP
QUICK = {"steps": 3, "seconds": 5.0, "pairs": 2}


def case_of(cell: str, earlier: str = "") -> Case:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(PRELUDE + earlier, namespace)
    namespace["In"] = ["", PRELUDE + earlier, cell]
    case = gpu_doctor.case(cell, namespace, name="mine")
    case.run()
    return case


def test_the_candidate_runs_the_changed_text_and_no_knob_is_turned() -> None:
    case = case_of(CELL)
    before = case.namespace["net"].weight.detach().clone()
    settings = {"batch_size": 8, "threads": 1}
    effect = case.trial(settings, pasted=True, **QUICK)  # type: ignore[arg-type]
    base, candidate = case.trials[-1]
    assert effect.verified == "as pasted", effect
    for verdict in ("inconclusive", "faster"):
        assert "measured again by running the changed cell" in str(replace(effect, verdict=verdict))
    assert base.source == CELL and candidate.source == case.fix(settings).cells[0].after != CELL
    assert dict(candidate.settings) == settings and dict(base.settings) == {}
    assert candidate.setup.training_loader is not None and candidate.setup.training_loader.batch_size == 8
    assert effect.batch_ratio == 0.5
    assert torch.equal(case.namespace["net"].weight, before) and case.namespace["loader"].batch_size == 16
    assert linecache.getlines("<gpu_doctor mine>") == CELL.splitlines(keepends=True)
    assert "batch_size=8" in "".join(linecache.getlines("<gpu_doctor mine with the change>"))
    assert case.trial(settings, **QUICK).verified == ""  # type: ignore[arg-type]


def test_a_change_in_an_earlier_cell_is_tried_by_settings() -> None:
    case = case_of(LOOP, LOADER)
    assert case.pasted({"num_workers": 1}).why_not == "the change lies in an earlier cell"
    effect = case.trial({"batch_size": 8}, pasted=True, **QUICK)  # type: ignore[arg-type]
    assert effect.verified == "" and effect.batch_ratio == 0.5
    assert case.trials[-1][1].source == LOOP


def test_what_is_no_text_or_has_no_place_says_why_it_cannot_be_run_as_pasted() -> None:
    case = case_of("args = (ds, 16)\nloader = DataLoader(*args)\n" + LOOP)
    assert case.pasted({"num_workers": 1}).why_not.endswith("be written into the cells")
    assert case.pasted({"num_workers": 0}).text == ""
    function = gpu_doctor.case(lambda: None, name="a function")
    assert function.pasted({"threads": 1}).why_not == "what is run is not given as text"
    elsewhere = Case("x = 1", {}, execute=lambda namespace: None)
    assert elsewhere.pasted({"threads": 1}).why_not == "what is run is not given as text"


def treated(monkeypatch: pytest.MonkeyPatch, after: str | None = None) -> tuple[Case, Any]:
    """A treatment of a cell to which another batch is offered; `after` stands for the changed text."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(PRELUDE, namespace)
    case = gpu_doctor.case(CELL, namespace)
    case.run()
    move = Move({"batch_size": 8}, "a rule")
    monkeypatch.setattr(
        "gpu_doctor.trials.treat.moves", lambda found, allowed, kept, tried: iter(() if kept else (move,))
    )
    if after is not None:
        changed = Fix({"batch_size": 8}, (FixedCell("this cell", CELL, after),))
        monkeypatch.setattr(case, "fix", lambda settings, history=None: changed)
    make_trials_faster(monkeypatch)
    return case, case.treat(changes_training=True, steps=3, seconds=5)


def test_a_plan_says_that_the_changed_cell_was_run(monkeypatch: pytest.MonkeyPatch) -> None:
    case, plan = treated(monkeypatch)
    assert [one.verified for one in plan.effects] == ["", "as pasted"] and plan.verified == "as pasted"
    assert case.trials[-1][1].source == plan.fix.cells[0].after
    for told in (plan_text(plan), plan_html(plan)):
        assert "2.00x faster, verified by running the changed" in told and "in 2 trials: batch_size=8." in told
    assert "by settings" not in plan_text(plan)


def test_a_changed_text_that_fails_is_not_recommended_and_the_settings_are_verified(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case, plan = treated(monkeypatch, "1 / 0\n" + CELL)
    assert [one.verified for one in plan.effects] == ["", "as pasted", "by settings"]
    assert plan.effects[1].outcome == "failed" and plan.verified == "by settings" and plan.settings == {"batch_size": 8}
    assert not plan.fix.cells and not plan.fix.complete and plan.fix.paste == "DataLoader(..., batch_size=8)"
    assert "is run (ZeroDivisionError: division by zero)" in plan_text(plan)
    assert "Verified by settings" in plan_text(plan) and "the changed cell fails." in plan_text(plan)
    assert case.namespace["loader"].batch_size == 16


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    start_ipython()
    one: InteractiveShell = InteractiveShell.instance()
    one.reset(new_session=True)
    one.run_line_magic("load_ext", "gpu_doctor")
    yield one
    one.run_line_magic("unload_ext", "gpu_doctor")
    one.reset(new_session=True)


def test_in_a_notebook_the_changed_cell_keeps_its_magics_and_has_a_file_of_its_own(shell: InteractiveShell) -> None:
    written = "%%gpudoctor --no-view --name mine\nimport sys\nhere = %pwd\n!true\n" + CELL
    with capture_output():
        shell.run_cell(PRELUDE, store_history=True)
        shell.run_cell(written, store_history=True)
    case = gpu_doctor.last_case()
    assert case is not None
    with capture_output() as said:
        effect = case.trial({"batch_size": 8}, pasted=True, **QUICK)  # type: ignore[arg-type]
    assert effect.verified == "as pasted" and effect.batch_ratio == 0.5 and said.stdout == ""
    text = case.trials[-1][1].source
    assert text == written.replace("batch_size=16", "batch_size=8") and text != written
    own, changed = Cell.of(shell, written), Cell.of(shell, text)
    assert own.source == written and own.file != changed.file
    assert linecache.getline(changed.file, 5) == "loader = DataLoader(ds, batch_size=8, shuffle=True)\n"
    with pytest.raises(ValueError, match="A changed cell begins with %%gpudoctor"):
        Cell.of(shell, "x = 1")
