"""A trial and the magic run a cell with another literal, and leave the cell as it was written."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import gpu_doctor
from tests.support.knob_cell_variables_parts import BY_HAND
from tests.support.shells import one_shell as one_shell
from tests.support.shells import shell as shell

pytestmark = pytest.mark.core


def test_a_trial_runs_the_cell_with_another_literal_and_leaves_the_cell_as_it_is() -> None:
    ns: dict[str, Any] = {"__name__": "__main__", "seen": []}
    case = gpu_doctor.case(BY_HAND, ns)
    baseline = case.run()
    assert len(baseline.steps) == 20
    effect = case.trial({"vary.batch_size": 64}, steps=50)
    assert effect.outcome == "completed", effect.reason
    assert (
        effect.speedup is not None and effect.speedup > 1.2
    )  # four times the samples in a step of about the same time
    assert (ns["batch_size"], ns["seen"]) == (16, [(1e-3, 16)])  # a trial leaves no trace
    other = case.run({"vary.batch_size": 80, "vary.lr": 1})
    assert len(other.steps) == 4 and ns["seen"][-1] == (1.0, 80)
    assert case.code({"vary.lr": 1.0}) == "lr = 1.0"


def test_the_magic_runs_the_cell_as_written_and_a_trial_with_another_value(shell: InteractiveShell) -> None:
    shell.user_ns["seen"] = []
    with capture_output() as said:
        shell.run_cell("%%gpudoctor --no-view --vary batch_size=16,80\nhere = %pwd\n" + BY_HAND)
    assert not said.stderr, said.stderr
    case = gpu_doctor.last_case()
    assert case is not None and shell.user_ns["seen"] == [(1e-3, 16)]
    assert "vary.batch_size      as written 16" in repr(shell.run_line_magic("gpudoctor", "knobs"))
    effect = case.trial({"vary.batch_size": 80}, steps=4)
    assert effect.outcome in ("completed", "budget-reached"), effect.reason
    assert case.trials[-1][1].steps.samples.max() == 80
    with capture_output():
        shell.run_cell("%%gpudoctor --no-view --set vary.batch_size=80\n" + BY_HAND)
    assert shell.user_ns["seen"][-1] == (1e-3, 80)


def test_the_magic_refuses_before_the_cell_runs(shell: InteractiveShell) -> None:
    shell.user_ns["seen"] = []
    with capture_output() as said:
        shell.run_cell("%%gpudoctor --no-view --vary model=3\n" + BY_HAND)
    assert "assign it a plain value" in said.stderr + said.stdout and shell.user_ns["seen"] == []
