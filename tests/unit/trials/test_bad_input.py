"""Bad input outside of the cell's own code: each gets one clear sentence, nothing is lost, nothing stays patched."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from IPython.core.error import UsageError
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gpu_doctor
from gpu_doctor.capture import patching
from gpu_doctor.recording import LoaderSetup, Setup
from gpu_doctor.report import as_text
from gpu_doctor.report.sections import Reported
from gpu_doctor.trials import knobs
from gpu_doctor.trials.executors import RayExecutor
from gpu_doctor.trials.knobs.knob import Refused
from gpu_doctor.trials.rounds import BLOCK_SHARE
from tests.support.small_loop import LOOP, namespace


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"num_workers": -1}, "of at least 0"),
        ({"num_workers": "many"}, "of at least 0"),
        ({"num_workers": True}, "of at least 0"),
        ({"batch_size": 0}, "of at least 1"),
        ({"batch_size": 2.5}, "of at least 1"),
        ({"batch_size": "64"}, "takes 64, not '64'"),
        ({"amp": "int4"}, "off, bf16 or fp16"),
        ({"threads": 0}, "of at least 1"),
        ({"prefetch_factor": -3}, "of at least 1"),
        ({"persistent_workers": "x"}, "True or False"),
    ],
)
def test_a_value_that_a_knob_does_not_have_is_refused_before_anything_runs(settings: Any, says: str) -> None:
    case = gpu_doctor.case("ran = True", {})
    effect = case.trial(settings)
    assert effect.outcome == "refused"
    assert says in effect.reason
    for attempt in (case.run, case.fix, case.code):
        with pytest.raises(Refused, match=re.escape(says)):
            attempt(settings)
    assert "ran" not in case.namespace
    assert patching.active() == ()


def test_every_value_that_a_knob_offers_is_one_that_it_takes() -> None:
    loader = LoaderSetup(key="loader", role="training", batch_size=32, num_workers=2, dataset_len=4096)
    seen = 0
    for name, knob in knobs.KNOBS.items():
        for choice in knob.choices(Setup(loaders=(loader,), usable_cores=4)):
            knobs.meant({name: choice.value}, Setup())
            seen += 1
    assert seen > 2 * len(knobs.KNOBS)


@pytest.mark.parametrize("settings", ["num_workers=2", ["num_workers=2"], 4])
def test_settings_that_are_no_mapping(settings: Any) -> None:
    case = gpu_doctor.case("x = 1")
    for attempt in (case.trial, case.run):
        with pytest.raises(TypeError, match=r"such as \{'num_workers': 4\}"):
            attempt(settings)


@pytest.mark.parametrize(
    "budget",
    [
        *({"steps": 0}, {"steps": -5}, {"seconds": 0}, {"seconds": float("nan")}),
        *({"steps": "ten"}, {"steps": True}, {"seconds": "x"}, {"steps": [5]}),
    ],
)
def test_a_budget_that_measures_nothing(budget: Any) -> None:
    case = gpu_doctor.case("x = 1")
    grid = {"num_workers": [0]}
    asks: list[Callable[..., Any]] = [case.run, case.measured, case.treat, case.flops]
    asks += [lambda **given: case.trial({}, **given), lambda **given: case.sweep(grid, **given)]
    asks += [case.largest_batch] if "seconds" in budget else []
    for attempt in asks:
        with pytest.raises(ValueError, match=r"such as (steps=50|seconds=60), not "):
            attempt(**budget)
    assert case.trials == [] and case.effects == []


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        *(({"trial_steps": one}, "trial_steps must be a whole number of at least 1") for one in (0, 2.5, "50", None)),
        *(({"trial_seconds": one}, "trial_seconds must be a number .* above 0") for one in (0, "60", True)),
    ],
)
def test_a_cases_budget_for_trials_that_measures_nothing(budget: Any, said: str) -> None:
    with pytest.raises(ValueError, match=f"{said}, such as trial_s(teps=50|econds=20), not "):
        gpu_doctor.case("x = 1", **budget)


def test_trials_have_the_budget_of_their_case_unless_they_get_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    case = gpu_doctor.case("x = 1", trial_steps=7, trial_seconds=3)
    given: list[tuple[Any, ...]] = []

    def once(settings: Any, role: str, steps: int | None, seconds: float | None) -> Any:
        given.append((steps, seconds))
        raise KeyboardInterrupt

    monkeypatch.setattr(case, "once", once)
    asks: list[Callable[..., Any]] = [case.measured, case.treat]
    for attempt in (*asks, lambda **own: case.trial({}, **own)):
        for own in ({}, {"steps": 9, "seconds": 5.0}):
            with pytest.raises(KeyboardInterrupt):
                attempt(**own)
    assert given == [(7, BLOCK_SHARE * 3.0), (9, BLOCK_SHARE * 5.0)] * 3  # a side has a part of the trial's seconds


def test_a_knob_that_is_given_by_no_name() -> None:
    case, odd = gpu_doctor.case("x = 1"), cast(Any, {2: [1]})
    for attempt in (case.trial, case.run, case.fix, case.code):
        with pytest.raises(TypeError, match=r"\{'num_workers': 4\}, not by 2"):
            attempt(odd)
    with pytest.raises(ValueError, match="no knob named 2"):
        case.sweep(odd)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"code": 3}, "the text of a cell or a function"),
        ({"code": lambda model: model}, "it needs model: give it as functools.partial"),
        ({"code": "x = 1", "namespace": [1]}, "such as globals"),
        ({"code": "x = 1", "name": 3}, "name must be a text"),
        ({"code": ""}, "empty"),
        ({"code": "  \n"}, "empty"),
        ({"code": "for in"}, "invalid syntax"),
    ],
)
def test_code_that_cannot_be_a_case(given: Any, says: str) -> None:
    with pytest.raises((TypeError, ValueError, SyntaxError), match=says):
        gpu_doctor.case(**given)


def test_functions_that_need_no_argument_are_cases() -> None:
    def train(epochs: int = 1, *rest: Any, **more: Any) -> None: ...

    for code in (train, lambda: None, functools.partial(lambda model: None, 1), print):
        assert gpu_doctor.case(code).source == ""


def test_a_trial_of_code_that_fails_as_written_does_not_blame_the_setting() -> None:
    effect = gpu_doctor.case(LOOP + "1 / 0", namespace(batch=32)).trial({"batch_size": 64})
    assert effect.outcome == "failed"
    assert effect.reason == "also without the change: ZeroDivisionError: division by zero"


class FailsInWorker(torch.utils.data.Dataset[Any]):
    """Raises in a worker only."""

    def __len__(self) -> int:
        return 320

    def __getitem__(self, index: int) -> Any:
        if torch.utils.data.get_worker_info() is not None:
            raise OSError("no such image")
        return torch.zeros(4), 1


def test_a_loader_that_fails_in_a_worker_is_reported_with_the_workers_own_error() -> None:
    names = namespace(loader=DataLoader(FailsInWorker(), batch_size=32))
    effect = gpu_doctor.case(LOOP, names).trial({"num_workers": 1}, steps=3)
    assert effect.outcome == "failed"
    assert effect.reason == "OSError: no such image (in a DataLoader worker)"
    assert names["loader"].num_workers == 0


CASE = gpu_doctor.case("x = 1")
GRID = {"num_workers": [0]}
MANY = r"max_trials must be a whole number.*max_trials=\d+, not "
WRONG: list[tuple[Callable[[Any], Any], tuple[Any, ...], type[Exception], str]] = [
    (gpu_doctor.diagnose, ("run.npz",), TypeError, r"gpu_doctor\.load\(path\)"),
    (gpu_doctor.measure, ("run.npz", None), TypeError, r"^measure\(\) takes [^\n]*\.$"),
    (lambda one: gpu_doctor.compare(one, one), ("a.npz", 3, ["a.npz"]), TypeError, r"^compare\(\) takes [^\n]*\.$"),
    (gpu_doctor.load, (3,), TypeError, r"^load\(\) takes [^\n]*\.$"),
    (gpu_doctor.explain, (3,), TypeError, r"^explain\(\) takes [^\n]*\.$"),
    (lambda one: CASE.treat(max_trials=one), (0, -1, "8", 2.5, None, True), ValueError, MANY),
    (lambda one: CASE.sweep(GRID, max_trials=one), (0, -1, "8", 2.5, None, True), ValueError, MANY),
    (lambda one: CASE.treat(changes_training=one), ("no",), TypeError, "takes True or False, not 'no'"),
    (
        lambda one: CASE.sweep(GRID, executor=one),
        ("ray", object(), RayExecutor),
        TypeError,
        r"executor says where a sweep runs: .*RayExecutor",
    ),
]


@pytest.mark.parametrize(("call", "values", "error", "says"), WRONG)
def test_an_argument_of_another_kind_is_answered_in_one_sentence(
    call: Callable[[Any], Any], values: tuple[Any, ...], error: type[Exception], says: str
) -> None:
    for value in values:
        with pytest.raises(error, match=says):
            call(value)


def test_a_trial_of_code_that_trains_nothing_says_why() -> None:
    effect = gpu_doctor.case("x = sum(range(10))", {}).trial({"threads": 1}, steps=5, seconds=5)
    assert effect.speedup is None
    assert "no training step" in str(effect).lower() or "nothing to turn" in str(effect), str(effect)


def test_a_watch_is_for_one_block() -> None:
    run = gpu_doctor.watch()
    with run:
        pass
    with pytest.raises(RuntimeError, match="make another"), run:
        pytest.fail("not reached")
    assert patching.active() == ()


def test_a_watch_reports_an_error_as_a_run_does() -> None:
    with pytest.raises(ValueError, match="first"), gpu_doctor.watch() as block:
        raise ValueError("first\nsecond")
    assert block.recording is not None and block.recording.reason == "ValueError: first"


def test_a_watch_leaves_the_traceback_of_an_error_as_it_was() -> None:
    def broken(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        raise ValueError("bad batch")

    model = nn.Linear(2, 1)
    torch.optim.SGD(model.parameters(), lr=0.1)
    model.register_forward_pre_hook(broken)
    with pytest.raises(ValueError, match="bad batch") as caught, gpu_doctor.watch():
        model(next(iter(DataLoader(TensorDataset(torch.rand(4, 2)))))[0])
    files = [str(one.path) for one in caught.traceback]
    assert not [one for one in files if "gpu_doctor/capture" in one]
    assert any("torch" in one for one in files)


@pytest.mark.parametrize(("code", "outcome"), [(None, "completed"), (0, "completed"), (3, "failed")])
def test_a_block_that_exits_without_an_error_is_complete(code: int | None, outcome: str) -> None:
    with pytest.raises(SystemExit), gpu_doctor.watch() as block:
        raise SystemExit(code)
    assert block.recording is not None and block.recording.outcome == outcome


def test_a_recording_is_not_saved_beside_a_directory_that_was_named(tmp_path: Path) -> None:
    recording = gpu_doctor.case("x = 1").run()
    with pytest.raises(OSError, match="is a directory"):
        recording.save(tmp_path)


@pytest.mark.parametrize(("cell", "raised"), [("1 / 0", ZeroDivisionError), ("done = 1", UsageError)])
def test_a_save_that_fails_loses_neither_the_recording_nor_the_cells_own_error(
    cell: str, raised: type[Exception], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    gpu_doctor.load_ipython_extension(shell)
    folder = tmp_path / "there"
    folder.mkdir()  # as the cell begins; it takes it away
    line = f"--no-view --save {folder / 'run.npz'}"
    with pytest.raises(raised) as error:
        shell.run_cell_magic("gpudoctor", line, f"import os; os.rmdir({str(folder)!r})\n{cell}")
    case = gpu_doctor.last_case()
    assert case is not None and len(case.recordings) == 1
    assert "It is still in memory" in f"{error.value}{capsys.readouterr().err}"


SCRIPT = "<script>alert(1)</script>"


@pytest.mark.parametrize(("code", "says"), [("1 / 0", "fails with ZeroDivisionError"), ("x = 1", "No training step")])
def test_a_treatment_with_nothing_to_try_says_why(code: str, says: str) -> None:
    plan = gpu_doctor.case(code).treat(steps=3, seconds=3)
    assert says in str(plan)
    assert plan.effects == ()


def test_markup_in_names_and_messages_stays_text() -> None:
    names = namespace()
    names["Bad"] = type(SCRIPT, (nn.Linear,), {})
    code = f"model = Bad(4, 2)\n{LOOP}\n# {SCRIPT}\nraise RuntimeError({SCRIPT!r})"
    case = gpu_doctor.case(code, names, name=SCRIPT)
    with pytest.raises(RuntimeError):
        case.run()
    case.trial({"batch_size": 64}, steps=3, pairs=1)
    assert case.diagnosis is not None
    page = as_text.html(
        Reported(case.diagnosis, tuple(case.recordings), tuple(case.effects), title=SCRIPT, notes=(SCRIPT,))
    )
    assert "alert(1)" in page
    assert "<script" not in page
    assert "<script" not in case.diagnosis._repr_html_()


@pytest.mark.skipif(torch.cuda.is_available(), reason="pins on a GPU")
def test_pinning_without_a_gpu_is_noted_on_the_first_run() -> None:
    recording = gpu_doctor.case(LOOP, namespace()).run({"pin_memory": True})
    assert any("pin_memory=True changed nothing" in note for note in recording.notes)
