"""What is verified is what is pasted: the last trial runs the cell's own text with the settings written in."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.testing.globalipapp import start_ipython
from IPython.utils.capture import capture_output

import gpu_doctor
from gpu_doctor.notebook.cell_runner import Cell
from gpu_doctor.report.plan import plan_html
from gpu_doctor.trials.candidates import Move
from gpu_doctor.trials.case import Case
from tests.support.faster import make_trials_faster
from tests.support.patched_cells import LOOP, PRELUDE

LOADER = "loader = DataLoader(ds, batch_size=16, shuffle=True)\n"
CELL = LOADER + LOOP
QUICK = {"steps": 3, "seconds": 5.0, "pairs": 1}


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
    effect = case.trial(settings, **QUICK)  # type: ignore[arg-type]
    base, candidate = case.trials[-1]
    assert base.source == CELL and candidate.source == case.fix(settings).cells[0].after != CELL
    assert dict(candidate.settings) == settings and dict(base.settings) == {}
    assert candidate.setup.training_loader is not None and candidate.setup.training_loader.batch_size == 8
    assert effect.batch_ratio == 0.5
    assert torch.equal(case.namespace["net"].weight, before) and case.namespace["loader"].batch_size == 16
    assert linecache.getlines("<gpu_doctor mine>") == CELL.splitlines(keepends=True)
    assert "batch_size=8" in "".join(linecache.getlines("<gpu_doctor mine with the change>"))


def test_both_sides_run_texts_of_their_own() -> None:
    case = case_of(CELL)
    case.trial({"batch_size": 8}, against={"batch_size": 4}, **QUICK)  # type: ignore[arg-type]
    base, candidate = case.trials[-1]
    assert "batch_size=4" in base.source and "batch_size=8" in candidate.source


def test_what_an_earlier_cell_made_is_turned_and_the_rest_is_written() -> None:
    case = case_of(LOOP, LOADER)
    written = case.written({"batch_size": 8, "threads": 1})
    assert list(written.reasons) == ["batch_size"] and "earlier cell" not in written.text
    effect = case.trial({"batch_size": 8, "threads": 1}, **QUICK)  # type: ignore[arg-type]
    assert effect.batch_ratio == 0.5 and "set_num_threads(1)" in case.trials[-1][1].source


FUNCTIONS = """def unused(): return DataLoader(ds, batch_size=16)
def made():
    return DataLoader(ds, batch_size=16)
def go():
    for x in made():
        opt.zero_grad()
        loss = net(x).sum()
        loss.backward()
        opt.step()
"""


def test_a_function_of_an_earlier_cell_is_changed_where_the_cell_calls_it() -> None:
    case = case_of("go()\n", FUNCTIONS)
    (changed,) = case.fix({"amp": "bf16"}).cells
    written = case.written({"amp": "bf16"})
    assert written.reasons == {} and written.text.endswith("\ngo()\n") and "def unused" not in written.text
    assert written.text.removesuffix("\ngo()\n") in changed.after
    go = case.namespace["go"]
    case.trial({"amp": "bf16"}, **QUICK)  # type: ignore[arg-type]
    assert case.trials[-1][1].setup.autocast == "bfloat16" and case.namespace["go"] is go


def test_an_earlier_cell_that_was_run_again_is_read_again() -> None:
    case = case_of("go()\n", FUNCTIONS)
    assert "sum()" in case.written({"amp": "bf16"}).text
    exec(changed := FUNCTIONS.replace("sum()", "mean()"), case.namespace)
    case.namespace["In"][1:2] = [PRELUDE, changed]
    case.trial({"amp": "bf16"}, **QUICK)  # type: ignore[arg-type]
    assert "mean()" in case.trials[-1][1].source


def test_what_is_no_text_or_has_no_place_says_why_it_is_not_written() -> None:
    case = case_of("args = (ds, 16)\nloader = DataLoader(*args)\n" + LOOP)
    assert "num_workers" in case.written({"num_workers": 1}).reasons
    assert case.written({"num_workers": 0}).text == case.source
    function = gpu_doctor.case(lambda: None, name="a function")
    assert "as text" in function.written({"threads": 1}).reasons["threads"]
    elsewhere = Case("x = 1", {}, execute=lambda namespace: None)
    assert "as text" in elsewhere.written({"threads": 1}).reasons["threads"]


def treated(monkeypatch: pytest.MonkeyPatch) -> tuple[Case, Any]:
    """A treatment of a cell to which another batch is offered."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(PRELUDE, namespace)
    case = gpu_doctor.case(CELL, namespace)
    case.run()
    move = Move({"batch_size": 8}, "a rule")
    monkeypatch.setattr(
        "gpu_doctor.trials.treat.moves", lambda found, allowed, kept, tried: iter(() if kept else (move,))
    )
    make_trials_faster(monkeypatch)
    return case, case.treat(changes_training=True, steps=3, seconds=5)


def test_a_plan_says_that_the_changed_cell_was_run(monkeypatch: pytest.MonkeyPatch) -> None:
    case, plan = treated(monkeypatch)
    assert [one.verified for one in plan.effects] == ["", "as pasted"] and plan.verified == "as pasted"
    assert case.trials[-1][1].source == plan.fix.cells[0].after
    for told in (str(plan), plan_html(plan)):
        assert "2.00x faster, verified by running the changed" in told and "in 2 trials: batch_size=8." in told
    assert "by settings" not in str(plan)


def test_a_changed_text_that_fails_is_no_gain() -> None:
    case = case_of(
        "seen = loader.batch_size if 'loader' in globals() else 16\n" + CELL + "assert loader.batch_size == 16\n"
    )
    effect = case.trial({"batch_size": 8}, steps=50, seconds=5.0, pairs=1)
    assert effect.outcome == "failed" and "AssertionError" in effect.reason
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
    written = "%%gpudoctor --no-view --name mine\nimport sys\nhere = %pwd\nthere = %pwd\n" + CELL
    with capture_output():
        shell.run_cell(PRELUDE, store_history=True)
        shell.run_cell(written, store_history=True)
    case = gpu_doctor.last_case()
    assert case is not None
    with capture_output() as said:
        effect = case.trial({"batch_size": 8}, **QUICK)  # type: ignore[arg-type]
    assert effect.batch_ratio == 0.5 and said.stdout == "", effect.reason
    text = case.trials[-1][1].source
    assert text == written.replace("batch_size=16", "batch_size=8") and text != written
    own, changed = Cell.of(shell, written), Cell.of(shell, text)
    assert own.source == written and own.file != changed.file
    assert linecache.getline(changed.file, 5) == "loader = DataLoader(ds, batch_size=8, shuffle=True)\n"
    with pytest.raises(ValueError, match="A changed cell begins with %%gpudoctor"):
        Cell.of(shell, "x = 1")
