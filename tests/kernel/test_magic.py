"""`%%gpudoctor` in a real IPython shell: the cell keeps its semantics, bad input gets one sentence, nothing is left."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

import gpu_doctor
from gpu_doctor.trials.case import Case
from tests.support import patched_cells
from tests.support.jobs import coupled, saved
from tests.support.recordings import Loop
from tests.support.shells import LOOP, ran
from tests.support.shells import one_shell as one_shell
from tests.support.shells import shell as shell


def last_case() -> Case:
    found = gpu_doctor.last_case()
    assert found is not None
    return found


def test_the_cell_runs_in_the_namespace_and_leaves_a_diagnosis(shell: InteractiveShell) -> None:
    result, out, err, outputs = ran(shell, "%%gpudoctor --no-view\n" + LOOP)
    assert result.success
    assert len(shell.user_ns["losses"]) == 20
    case = gpu_doctor.last_case()
    assert case is not None
    assert case.diagnosis is not None
    vitals = gpu_doctor.measure(case.recordings[-1])
    assert (vitals.steps, vitals.samples) == (20, 640)
    assert out == err == ""
    assert "gpu-doctor-static" in outputs[-1].data["text/html"]
    assert case.diagnosis.verdict in " ".join(outputs[-1].data["text/plain"].split())  # long lines are wrapped


def test_results_are_those_of_the_bare_cell(shell: InteractiveShell) -> None:
    ran(shell, LOOP)
    bare = list(shell.user_ns["losses"])
    ran(shell, "%%gpudoctor --no-view\n" + LOOP)
    assert shell.user_ns["losses"] == bare


def test_the_last_expression_is_displayed(shell: InteractiveShell) -> None:
    _, out, _, _ = ran(shell, "%%gpudoctor --no-view\n6 * 7")
    assert "42" in out
    _, out, _, _ = ran(shell, "%%gpudoctor --no-view\n6 * 7;")
    assert "42" not in out
    _, out, _, _ = ran(shell, "%%gpudoctor --no-view\n6 * 7;  # quiet")
    assert "42" not in out


def test_ipython_syntax_await_and_triple_quotes_work(shell: InteractiveShell) -> None:
    if not shell.run_cell("listing = !echo hello").success:
        pytest.skip("this IPython is too old for this Python: it takes no `name = !command` in any cell")
    cell = '''%%gpudoctor --no-view
import asyncio
listing = !echo hello
%time total = sum(range(10))
await asyncio.sleep(0)
text = """first
    second"""
display("shown")
'''
    result, _out, _, _ = ran(shell, cell)
    assert result.success, result.error_in_exec
    assert list(shell.user_ns["listing"]) == ["hello"]
    assert shell.user_ns["total"] == 45
    assert shell.user_ns["text"] == "first\n    second"


def test_a_cell_begins_when_the_imports_are_done(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.user_ns["seen"] = seen = []
    monkeypatch.setattr("gpu_doctor.notebook.early_imports.finish", lambda: seen.append("imports"))
    ran(shell, "%%gpudoctor --no-view\nseen.append('cell')")
    assert seen == ["imports", "cell"]


def test_the_line_is_expanded_when_the_cell_runs_and_stands_as_it_was_written(shell: InteractiveShell) -> None:
    shell.user_ns["tag"] = "night 3"
    ran(shell, "%%gpudoctor --no-view --name '{tag}'\n" + LOOP)
    case = gpu_doctor.last_case()
    assert case is not None and case.name == "night 3"
    assert case.source.startswith("%%gpudoctor --no-view --name '{tag}'\n")


def test_an_exception_at_step_7_is_the_users_own_and_the_diagnosis_is_there(shell: InteractiveShell) -> None:
    cell = LOOP.replace("losses.append(loss.item())", "losses.append(loss.item())\n    if len(losses) == 7: 1 / 0")
    result, out, err, outputs = ran(shell, "%%gpudoctor --no-view\n" + cell)
    assert isinstance(result.error_in_exec, ZeroDivisionError)
    shown = out + err
    assert len(re.findall(r"17 +if len\(losses\) == 7: 1 / 0", shown)) == 1  # IPython 7 keeps the indentation
    assert "/gpu_doctor/" not in shown
    assert last_case().recordings[-1].outcome == "failed"
    assert any("gpu-doctor-static" in one.data.get("text/html", "") for one in outputs)
    assert len(last_case().recordings[-1].steps) == 7


def _fails(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("by our own fault")


@pytest.mark.parametrize("ours", ["diagnosis.diagnosis.measure", "report.html", "notebook.screen.display"])
@pytest.mark.parametrize("theirs", ["", "\nraise KeyError('theirs')"])
def test_what_fails_of_ours_hides_nothing_of_the_users(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch, ours: str, theirs: str
) -> None:
    monkeypatch.setattr(f"gpu_doctor.{ours}", _fails)
    result, out, err, outputs = ran(shell, "%%gpudoctor --no-view\n" + LOOP + theirs)
    assert len(shell.user_ns["losses"]) == 20
    assert isinstance(result.error_in_exec, KeyError) if theirs else result.success
    said = [one.data["text/plain"] for one in outputs] + [line for line in err.splitlines() if "gpu_doctor" in line]
    assert len(said) == 1, said
    assert "by our own fault" in said[0] and "\n" not in said[0]
    assert (out + err).count("by our own fault") <= 1
    assert len(last_case().recordings[-1].steps) == 20


def test_a_traceback_names_the_line_as_the_user_sees_it(shell: InteractiveShell) -> None:
    result, _, _, _ = ran(shell, "%%gpudoctor --no-view\nx = 1\n\nraise RuntimeError('here')")
    traceback = result.error_in_exec.__traceback__
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    assert traceback.tb_lineno == 4


def test_an_interrupt_passes_after_the_diagnosis(shell: InteractiveShell) -> None:
    cell = LOOP.replace(
        "losses.append(loss.item())", "losses.append(1)\n    if len(losses) == 9: raise KeyboardInterrupt"
    )
    result, _, _, outputs = ran(shell, "%%gpudoctor --no-view\n" + cell)
    assert isinstance(result.error_in_exec, KeyboardInterrupt)
    assert last_case().recordings[-1].outcome == "interrupted"
    assert outputs


@pytest.mark.parametrize(
    ("kind", "cell", "line"),
    [
        ("SyntaxError", "for x in:\n    pass", "for x in:"),
        ("SyntaxError", "x = 1\n\nreturn x", "return x"),
        ("SyntaxError", "x = 1\nexec('y = = 2')", "y = = 2"),
        ("IndentationError", "if True:\nx = 1", "x = 1"),
    ],
)
def test_a_syntax_error_shows_the_users_lines_alone(shell: InteractiveShell, kind: str, cell: str, line: str) -> None:
    result, out, err, _ = ran(shell, "%%gpudoctor --no-view\n" + cell)
    assert type(result.error_in_exec).__name__ == kind  # what a front end is told
    shown = re.sub(r"\x1b\[[0-9;]*m", "", out + err)
    assert "gpu_doctor/" not in shown and "run_cell_magic" not in shown and "interactiveshell" not in shown
    assert line in shown and f"{kind}: " in shown
    if "exec" not in cell:
        number = ("%%gpudoctor\n" + cell).splitlines().index(line) + 1
        assert result.error_in_exec.error.lineno == number and f"line {number}" in shown
        assert "Traceback" not in shown


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--stpes 3", "--stpes 3"),
        ("--set batch_size=none", "batch_size"),
        ("--name 'open", "close the quotation"),
    ],
)
def test_bad_options_get_one_sentence_that_names_the_right_form(shell: InteractiveShell, line: str, says: str) -> None:
    result, _, _, _ = ran(shell, f"%%gpudoctor {line}\nran = True")
    assert type(result.error_in_exec).__name__ == "UsageError"
    assert says in str(result.error_in_exec)
    assert "ran" not in shell.user_ns


def test_an_empty_cell_is_answered(shell: InteractiveShell) -> None:
    result, _, _, _ = ran(shell, "%%gpudoctor --no-view\n   \n")
    assert "empty" in str(result.error_in_exec)


def test_a_cell_without_training_says_so(shell: InteractiveShell) -> None:
    result, _, _, outputs = ran(shell, "%%gpudoctor --no-view\nx = 1")
    assert result.success
    diagnosis = last_case().diagnosis
    assert diagnosis is not None and diagnosis.bottleneck == "unknown"
    assert "no training step" in outputs[-1].data["text/plain"].lower()


def test_budget_and_save(shell: InteractiveShell, tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    result, _, _, _ = ran(shell, f"%%gpudoctor --no-view --steps 5 --name five --save {path}\n{LOOP}\nafter = True")
    assert result.success
    assert "after" not in shell.user_ns
    recording = gpu_doctor.load(path)
    assert (len(recording.steps), recording.outcome, recording.name) == (5, "budget-reached", "five")


def test_a_place_that_cannot_be_written_is_told_before_the_run(shell: InteractiveShell, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, why in (
        (tmp_path, "is a directory: name a file in it"),
        (tmp_path / "none" / "run.npz", f"There is no folder {tmp_path / 'none'}: create it"),
        (tmp_path / "file" / "run.npz", "There is no folder"),
        (tmp_path / f"{'x' * 300}.npz", "File name too long"),
        (Path("/proc/run.npz"), "/proc/run.npz cannot be written"),
    ):
        result, out, err, _ = ran(shell, f"%%gpudoctor --no-view --save {path}\nran = True")
        said = str(result.error_in_exec)
        assert said.startswith("Argument --save: ") and why in said and "\n" not in said
        assert "ran" not in shell.user_ns and "Traceback" not in out + err
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_the_budget_of_its_trials_stands_in_a_cells_line(shell: InteractiveShell) -> None:
    ran(shell, "%%gpudoctor --no-view --trial-steps 12 --trial-seconds 7.5\nx = 1")
    assert (last_case().trial_steps, last_case().trial_seconds) == (12, 7.5)
    ran(shell, "%%gpudoctor --no-view\nx = 1")
    assert (last_case().trial_steps, last_case().trial_seconds) == (50, 20.0)


def test_a_price_in_the_cells_line_stands_in_the_result(shell: InteractiveShell) -> None:
    slow = LOOP.replace("losses.append", "time.sleep(0.01)\n    losses.append")
    _, _, _, outputs = ran(shell, f"%%gpudoctor --no-view --price 2.5\nimport time\n{slow}")
    assert last_case().price == 2.5
    assert "of $2.50 an hour: " in " ".join(outputs[-1].data["text/plain"].split())


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        ("raise OSError('gone')", "failed"),
        ("raise KeyboardInterrupt", "interrupted"),
        ("raise SystemExit(0)", "completed"),
    ],
)
def test_an_error_within_a_script_is_the_runs_outcome(
    shell: InteractiveShell, tmp_path: Path, end: str, outcome: str
) -> None:
    """IPython shows it and raises nothing, so nor do we."""
    (tmp_path / "train.py").write_text(f"x = 1\n{end}\n")
    result, out, err, _ = ran(shell, f"%%gpudoctor --no-view\n%run {tmp_path / 'train.py'}")
    recording = last_case().recordings[-1]
    assert recording.outcome == outcome
    assert recording.reason == ("OSError: gone" if outcome == "failed" else "")
    assert result.success and (out + err).count("gone") == (2 if outcome == "failed" else 0)


def test_set_turns_a_knob_for_the_run_only(shell: InteractiveShell) -> None:
    ran(shell, LOOP)
    loop = LOOP[LOOP.index("losses = []") :]
    result, _, _, _ = ran(shell, "%%gpudoctor --no-view --set batch_size=64\n" + loop)
    assert result.success, result.error_in_exec
    assert len(shell.user_ns["losses"]) == 10
    assert shell.user_ns["loader"].batch_size == 32
    assert last_case().recordings[-1].settings == {"batch_size": 64}


def test_a_trial_that_would_use_up_an_iterator_is_refused_by_name(shell: InteractiveShell) -> None:
    for cell in (
        LOOP,
        "def made(): return iter(loader)\nbatches = made()",
        "%%gpudoctor --no-view\nx, y = next(batches)",
    ):
        assert ran(shell, cell, kept=True)[0].success
    effect, left = last_case().trial({"threads": 1}, steps=4), len(list(shell.user_ns["batches"]))
    assert (effect.outcome, left) == ("refused", 19)
    assert effect.reason.startswith("`batches` is an iterator (")


def test_a_nested_cell_runs_plainly(shell: InteractiveShell) -> None:
    cell = "%%gpudoctor --no-view\nget_ipython().run_cell_magic('gpudoctor', '--no-view', 'inner = 5')\nouter = 6"
    result, _, _, _ = ran(shell, cell)
    assert result.success, result.error_in_exec
    assert (shell.user_ns["inner"], shell.user_ns["outer"]) == (5, 6)


def test_a_second_run_answers_with_its_own_figures(shell: InteractiveShell) -> None:
    ran(shell, "%%gpudoctor --no-view\n" + LOOP)
    ran(shell, "%%gpudoctor --no-view\n" + LOOP.replace("640", "320"))
    assert gpu_doctor.measure(last_case().recordings[-1]).samples == 320


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("check", "No GPU"),
        ("explain slow-getitem", "What it means"),
        ("knobs", "num_workers"),
        ("knobs", "random augmentation draw other numbers"),
        ("report", "steps"),
        ("history", "completed"),
        ("nsys", "nsys profile"),
    ],
)
def test_the_line_magic_answers(shell: InteractiveShell, line: str, says: str) -> None:
    ran(shell, "%%gpudoctor --no-view\n" + LOOP)
    answer = shell.run_line_magic("gpudoctor", line)
    assert says in " ".join(repr(answer).split())  # long lines are wrapped


def test_a_report_asked_for_again_has_the_search_for_the_largest_batch(shell: InteractiveShell) -> None:
    ran(shell, f"%%gpudoctor --no-view\n{LOOP}")
    case = gpu_doctor.last_case()
    assert case is not None
    found = case.largest_batch()
    told = " ".join(repr(shell.run_line_magic("gpudoctor", "report")).split())
    assert " ".join(str(found).split()) in told


def test_the_folder_of_a_job_is_reported_as_its_table(shell: InteractiveShell, tmp_path: Path) -> None:
    saved(tmp_path, coupled([Loop(), Loop(wait=20.0)]))
    answer = shell.run_line_magic("gpudoctor", f"report {tmp_path}")
    assert "rank 1" in repr(answer) and "<table" in answer._repr_html_()


def test_compare_and_report_of_saved_recordings(shell: InteractiveShell, tmp_path: Path) -> None:
    for name in "ab":
        ran(shell, f"%%gpudoctor --no-view --save {tmp_path / name}.npz\n{LOOP}")
    effect = shell.run_line_magic("gpudoctor", f"compare {tmp_path / 'a.npz'} {tmp_path / 'b.npz'}")
    assert effect.speedup is not None
    assert "gpu-doctor-static" in shell.run_line_magic("gpudoctor", f"report {tmp_path / 'a.npz'}")._repr_html_()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--steps 5", "two percent signs"),
        ("dance", "'explain'"),
        ("explain slow-gtitem", "slow-getitem"),
        ("compare a", "missing a required argument"),
    ],
)
def test_a_wrong_word_is_answered_in_one_sentence(shell: InteractiveShell, line: str, says: str) -> None:
    result, _, _, _ = ran(shell, f"%gpudoctor {line}")
    assert says in str(result.error_in_exec)


def test_a_broken_file_is_answered_in_one_sentence(shell: InteractiveShell, tmp_path: Path) -> None:
    path = tmp_path / "broken.npz"
    path.write_bytes(b"PK\x03\x04 nothing more")
    result, _, _, _ = ran(shell, f"%gpudoctor report {path}")
    assert "not a complete gpu_doctor recording" in str(result.error_in_exec)


def test_unload_takes_the_magics_away(one_shell: InteractiveShell) -> None:
    one_shell.run_line_magic("load_ext", "gpu_doctor")
    one_shell.run_line_magic("unload_ext", "gpu_doctor")
    assert "gpudoctor" not in one_shell.magics_manager.magics["cell"]


def test_in_a_notebook_the_earlier_cells_are_those_that_ipython_remembers(shell: InteractiveShell) -> None:
    shell.reset(new_session=True)
    loop = patched_cells.LOOP
    for cell in (
        "here = %pwd\n" + patched_cells.PRELUDE,
        "%matplotlib?\nloader = DataLoader(ds, batch_size=16)",
        "%%gpudoctor --no-view\n# typo\n" + loop,
        "%%gpudoctor --no-view\n" + loop,
    ):
        ran(shell, cell, kept=True)
    fix = last_case().fix({"num_workers": 2, "threads": 1})
    assert fix.complete, str(fix)
    assert [cell.label for cell in fix.cells] == ["cell [2]", "this cell"]
    assert fix.cells[0].after == "%matplotlib?\nloader = DataLoader(ds, batch_size=16, num_workers=2)"
    assert fix.cells[1].after.startswith("%%gpudoctor --no-view\ntorch.set_num_threads(1)\nfor x in loader")


def test_nvtx_without_cuda_runs_nothing_and_says_so(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.version.cuda", None)
    result, *_ = ran(shell, "%%gpudoctor --no-view --nvtx\nreached = 1")
    assert type(result.error_in_exec).__name__ == "UsageError" and "reached" not in shell.user_ns


def test_the_command_for_nsight_names_the_notebook(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/me/my notes.ipynb")
    assert repr(shell.run_line_magic("gpudoctor", "nsys")).count("'my notes.ipynb'") == 1
