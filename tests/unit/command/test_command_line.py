"""The command on saved recordings and names, and bad input: one sentence on stderr and exit code 2."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpu_doctor.command import main, outputs
from gpu_doctor.diagnosis import diagnose, every_cause
from gpu_doctor.recording import Losses, Recording
from tests.support.recordings import starved
from tests.support.runs_compared import run


@pytest.fixture
def saved(tmp_path: Path) -> str:
    return str(starved(name="train <b>.py").save(tmp_path / "run.npz"))


def paths(folder: Path, *recordings: Recording) -> list[str]:
    return [str(one.save(folder / f"{i}.npz")) for i, one in enumerate(recordings)]


def test_a_saved_recording_is_told_on_stdout(saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", saved]) == 0
    told, complaints = capsys.readouterr()
    assert "loader-without-workers" in told and not complaints
    assert "\x1b" not in told, "no terminal, no colours"


def test_a_saved_recording_as_data_and_as_a_page(
    saved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "run.html"
    assert main(["report", saved, "--json", "-", "--html", str(page)]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data == json.loads(json.dumps(diagnose(starved(name="train <b>.py")).to_dict()))
    written = page.read_text(encoding="utf-8")
    assert written.startswith("<!doctype html>") and "gpu-doctor-static" in written
    assert "<b>.py" not in written and "http" not in written.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize(
    ("seconds", "code", "regression"),
    [((0.010, 0.010), 0, False), ((0.010, 0.014), 1, True), ((0.014, 0.010), 0, False)],
)
def test_the_gate_fails_where_a_regression_is_proved(
    seconds: tuple[float, float], code: int, regression: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = paths(tmp_path, *(run(one, seed=i) for i, one in enumerate(seconds)))
    assert main(["compare", *sides, "--fail-below", "0.95", "--json", "-"]) == code
    data = json.loads(capsys.readouterr().out)
    assert data["regression"] is regression and data["comparable"] is True and data["fail_below"] == 0.95


def test_the_gate_passes_where_one_pair_proves_nothing_and_two_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, third, fourth = paths(tmp_path, *(run(one, seed=i) for i, one in enumerate((0.01, 0.0115) * 2)))
    assert main(["compare", first, second, "--fail-below", "0.95"]) == 0
    assert "A B A B" in capsys.readouterr().out
    assert main(["compare", first, second, third, fourth, "--fail-below", "0.95"]) == 1


@pytest.mark.parametrize(("first", "compared"), [(2.0, True), (2.1, False)])
def test_losses_are_compared_only_of_runs_that_began_alike(
    first: float, compared: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = [
        replace(run(0.01), losses=Losses(np.arange(3.0), np.array([0.0, 32.0, 64.0]), np.array([begin, 1.5, end])))
        for begin, end in ((2.0, 1.0), (first, 1.4))
    ]
    main(["compare", *paths(tmp_path, *sides), "--json", "-"])
    assert (json.loads(capsys.readouterr().out)["loss_verdict"] is not None) is compared


def test_without_a_bound_nothing_fails(tmp_path: Path) -> None:
    assert main(["compare", *paths(tmp_path, run(0.010), run(0.020))]) == 0


def test_runs_of_two_machines_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = [replace(one, setup=replace(one.setup, host=f"node-{i}")) for i, one in enumerate((run(0.01), run(0.03)))]
    assert main(["compare", *paths(tmp_path, *there), "--fail-below", "0.95"]) == 0
    told = capsys.readouterr().out
    assert "cannot be compared" in told and "node-1" in told


def test_without_a_name_every_cause_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in listed] == [cause.name for cause in every_cause()]


def test_a_cause_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "slow_getitem"]) == 0
    assert capsys.readouterr().out.startswith("slow-getitem (input)")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("run", "gpudoctor run train.py"),
        ("run nowhere.py", "nowhere.py does not exist"),
        ("run .", "is a folder"),
        ("run --save nowhere/run.npz train.py", "no folder"),
        ("run --json . train.py", "is a folder"),
        ("report nowhere.npz", "no recording"),
        ("report pyproject.toml", "not a complete"),
        ("compare a.npz", "1 file"),
        ("compare a.npz b.npz --fail-below 1.2", "0.95"),
        ("explain slow-getitm", "slow-getitem"),
    ],
)
def test_bad_input_is_one_sentence(line: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    told, complaint = capsys.readouterr()
    assert not told and says in complaint and complaint.count("\n") == 1


@pytest.mark.parametrize("line", ["", "reprot x", "compare a b --fail-below x", "report a --jsn x", "report"])
def test_a_line_that_cannot_be_parsed_is_one_sentence(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


class Terminal:
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    closed = False

    @staticmethod
    def isatty() -> bool:
        return True


def test_a_terminal_shows_the_verdict_in_bold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    text = "head\n\nverdict\n  more\n  Try: this\n\nrest"
    terminal: object = Terminal()
    shown = outputs.emphasized(text, terminal)  # type: ignore[arg-type]
    assert shown == "head\n\n\x1b[1mverdict\n  more\x1b[0m\n  Try: this\n\nrest"
    monkeypatch.setenv("NO_COLOR", "1")
    assert outputs.emphasized(text, terminal) == text  # type: ignore[arg-type]


def test_the_other_project_of_that_name_is_noticed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["explain", "slow-getitem"])
    assert not capsys.readouterr().err
    described = tmp_path / "gpu_doctor-1.0.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: gpu-doctor\nVersion: 1.0.0\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert main(["explain", "slow-getitem"]) == 0
    told, complaint = capsys.readouterr()
    assert told.startswith("slow-getitem") and "pip uninstall" in complaint and complaint.count("\n") == 1
