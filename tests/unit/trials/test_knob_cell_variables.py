"""Cell variables as a knob: a literal at the cell's top is another for one run; everything else is refused in words."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import gpu_doctor
from gpu_doctor.cell.source import CellSource
from gpu_doctor.notebook.options import parsed_cell_line
from gpu_doctor.recording import Setup
from gpu_doctor.report.panel.controls import checked_request, controls
from gpu_doctor.trials import knobs
from gpu_doctor.trials.knobs.cell_variables import knobs_of, parse_variations, replaced, variables_of
from gpu_doctor.trials.knobs.knob import Refused
from tests.support.shells import one_shell as one_shell
from tests.support.shells import shell as shell

BY_HAND = """import torch
from torch import nn
lr = 1e-3  # the learning rate
batch_size = 16
name: str = "plain"
shuffle = True
down = -2
x, y = torch.randn(320, 8), torch.randint(0, 2, (320,))
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=lr)
seen.append((lr, batch_size))
for i in range(0, len(x), batch_size):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x[i:i + batch_size]), y[i:i + batch_size]).backward()
    optimizer.step()
"""


def test_literals_at_the_top_are_variables() -> None:
    assert variables_of(BY_HAND) == {"lr": 1e-3, "batch_size": 16, "name": "plain", "shuffle": True, "down": -2}


def test_the_batch_size_of_a_loader_is_turned_together_with_another_knob() -> None:
    cell = (
        "import torch\nfrom torch.utils.data import DataLoader, TensorDataset\nsize = 8\n"
        "loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=size)\nnet = torch.nn.Linear(4, 1)\n"
        "optimizer = torch.optim.SGD(net.parameters(), 0.1)\n"
        "for x, in loader:\n    net(x).sum().backward()\n    optimizer.step()\n"
    )
    case = gpu_doctor.case(cell)
    case.run()
    recording = case.run({"vary.size": 32, "num_workers": 1})
    loader = recording.setup.training_loader
    assert loader is not None and (loader.batch_size, loader.num_workers) == (32, 1)


def test_lines_keep_their_numbers_in_tracebacks() -> None:
    cell = 'mode = """a\nb"""\nwidth = 3\n\n1 / (width - 7)\n'
    with pytest.raises(ZeroDivisionError) as raised:
        gpu_doctor.case(cell).run({"vary.width": 7, "vary.mode": "c"})
    assert raised.traceback[-1].lineno + 1 == 5


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"vary.nothing": 3}, "assign it a plain value at the top"),
        ({"vary.model": 3}, "assign it a plain value at the top"),
        ({"vary.i": 3}, "assign it a plain value at the top"),
        ({"vary.lr": "fast"}, "lr must be a number, as in the cell"),
        ({"vary.lr": float("nan")}, "finite"),
        ({"vary.lr": True}, "lr must be a number, as in the cell"),
        ({"vary.batch_size": 16.5}, "batch_size must be a whole number"),
        ({"vary.shuffle": 1}, "shuffle must be True or False"),
        ({"vary.name": 3}, "name must be a text, as in the cell"),
        ({"vary.lr": None}, "lr must be a number, as in the cell"),
        ({"vary.lr": object()}, "vary.lr takes a literal"),
        ({"vary.": 1}, "no knob named"),
        ({"vary.a b": 1}, "no knob named"),
    ],
)
def test_what_cannot_be_varied_is_refused_in_a_sentence(settings: dict[str, Any], said: str) -> None:
    ns: dict[str, Any] = {"__name__": "__main__", "seen": []}
    case = gpu_doctor.case(BY_HAND, ns)
    with pytest.raises(Refused, match=said):
        case.run(settings)
    assert ns["seen"] == []
    effect = case.trial(settings)
    assert effect.outcome == "refused" and said in effect.reason


@pytest.mark.parametrize(
    "cell",
    [
        "a = 1\na = 2",
        "a = 1\na += 1",
        "a = 1\nfor a in []: pass",
        "a = 1\nwith open('x') as a: pass",
        "a = 1\nimport math as a",
        "a = 1\ndef f():\n    global a\n    a = 2",
        "a = 1\nif True:\n    a = 2",
        "a = 1\n(a := 3)",
        "a = 1\ndel a",
    ],
)
def test_a_name_with_two_values_is_refused(cell: str) -> None:
    with pytest.raises(Refused, match="more than once"):
        replaced(CellSource(cell).tree, {"a": 3})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "cell", ["if True:\n    a = 1", "a = f(1)", "a = [1, f()]", "a: int", "*a, b = 1, 2", "b = a, c = 1, 2"]
)
def test_what_is_no_literal_at_the_top_is_refused(cell: str) -> None:
    with pytest.raises(Refused, match="assign it a plain value"):
        replaced(CellSource(cell).tree, {"a": 3})  # type: ignore[arg-type]


def test_what_functions_bind_is_their_own() -> None:
    assert variables_of("a = 1\ndef f():\n    a = 2\nclass C:\n    a = 3\n[a for a in ()]") == {"a": 1}


def test_a_function_has_no_cell_to_vary() -> None:
    with pytest.raises(Refused, match="given as text"):
        gpu_doctor.case(lambda: None).run({"vary.lr": 1.0})


def test_the_panel_offers_them_as_controls_and_takes_them_back() -> None:
    table = {**knobs.KNOBS, **knobs_of(BY_HAND, parse_variations(["lr=1e-3,3e-4", "name=other"]))}
    control = {one.name: one for one in controls(table, Setup(torch_version="2"), True)}["vary.lr"]
    assert [choice.value for choice in control.choices] == [1e-3, 3e-4]
    assert control.front and control.refusal == "" and "loss" in control.turned
    taken = checked_request({"ask": "trial", "settings": {"vary.lr": 3e-4, "vary.name": "other"}, "steps": 5}, table)
    assert taken["settings"] == {"vary.lr": 3e-4, "vary.name": "other"}


@pytest.mark.parametrize(
    "line", ["--vary lr", "--vary =3", "--vary lr=", "--vary lr=1,,2", "--vary lr=1 --vary lr=2", "--vary 'a b=1'"]
)
def test_a_wrong_option_is_answered_in_one_sentence(line: str) -> None:
    with pytest.raises(UsageError, match="--vary"):
        parsed_cell_line(line)


def test_the_numbers_and_switches_of_the_cell_are_offered_unasked_under_more() -> None:
    table = knobs_of(BY_HAND, parse_variations(["lr=1e-3,3e-4"]))
    assert list(table) == ["vary.lr", "vary.batch_size", "vary.shuffle", "vary.down"]  # no text: what else could it be
    shown = {one.name: one for one in controls({**knobs.KNOBS, **table}, Setup(torch_version="2"), True)}
    assert [choice.value for choice in shown["vary.batch_size"].choices] == [16, 8, 32, 64]
    assert [choice.value for choice in shown["vary.shuffle"].choices] == [True, False]
    assert (shown["vary.lr"].front, shown["vary.batch_size"].front) == (True, False)
    assert shown["vary.batch_size"].refusal == ""
    taken = checked_request({"ask": "trial", "settings": {"vary.batch_size": 32, "vary.shuffle": False}}, table)
    assert taken["settings"] == {"vary.batch_size": 32, "vary.shuffle": False}
    many = "\n".join(f"a{i} = {i}" for i in range(40))
    assert len(knobs_of(many, {})) == 8 and next(iter(knobs_of(many, {"a30": ["1"]}))) == "vary.a30"
    assert [knobs_of(f"a = {one}", {})["vary.a"].choices(Setup())[1].value for one in ("0", "1", "0.5", "True")] == [
        1,
        2,
        0.05,
        False,
    ]
    assert knobs_of("a = 0.0\n_b = 2", {})["vary.a"].choices(Setup())[0].value == 0.0
    assert knobs_of("not python at all", {}) == {}


def test_a_batching_function_of_an_earlier_cell_reads_the_varied_literal() -> None:
    earlier = """import torch
from torch import nn
torch.set_num_threads(1)
x, y = torch.randn(320, 8), torch.randint(0, 2, (320,))
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def batches():
    for i in range(0, len(x), batch_size):
        yield x[i:i + batch_size], y[i:i + batch_size]
"""
    cell = """batch_size = 16
for xb, yb in batches():
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(xb), yb).backward()
    optimizer.step()
"""
    ns: dict[str, Any] = {"__name__": "__main__"}
    exec(earlier, ns)
    case = gpu_doctor.case(cell, ns)
    assert len(case.run().steps) == 20
    effect = case.trial({"vary.batch_size": 64}, steps=5)
    assert effect.outcome in ("completed", "budget-reached"), effect.reason
    assert case.trials[-1][0].steps.samples.max() == 16 and case.trials[-1][1].steps.samples.max() == 64
    assert ns["batch_size"] == 16
    fix = case.fix({"vary.batch_size": 64}, [earlier])
    assert fix.complete and fix.cells[0].after == cell.replace("16", "64")


@pytest.mark.parametrize("text", ["fast", "nan", "[1]", "None", "1+1"])
def test_a_value_of_another_kind_is_answered_with_the_value(text: str) -> None:
    with pytest.raises(ValueError, match=r"^lr must be a number.* \(0\.001\), not .*\.$"):
        knobs_of(BY_HAND, {"lr": [text]})


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
