"""Scripts under `python -m gpu_doctor run`, in processes of their own, beside the same under plain Python."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import gpu_doctor
from tests.support.repository import ROOT

RUN = ("-m", "gpu_doctor", "run")
TRAINS = """
    import argparse, os, signal, sys
    assert not {"torch", "numpy"} & set(sys.modules), "what a program sets for them must come first"
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    def train(workers, method, at=None, then=None):
        loader = DataLoader(TensorDataset(torch.rand(160, 4)), 4, num_workers=workers, multiprocessing_context=method)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number, (inputs,) in enumerate(loader):
            optimizer.zero_grad()
            model(inputs).mean().backward()
            optimizer.step()
            if number == at:
                then()

    print("imported as", __name__)
    if __name__ == "__main__":
        parser = argparse.ArgumentParser()
        parser.add_argument("--how", default="well")
        how = parser.parse_args().how
        ends = {
            "raises": lambda: {}["missing"],
            "interrupted": lambda: signal.raise_signal(signal.SIGINT),
            "terminated": lambda: signal.raise_signal(signal.SIGTERM),
            "removes": lambda: os.rmdir("gone"),
            "moves": lambda: (os.mkdir("elsewhere"), os.chdir("elsewhere")),
            "closes": lambda: sys.stderr.close(),
            "launches": lambda: os.environ.update(RANK="0", WORLD_SIZE="2"),
        }
        if how in ends:
            train(0, None, 25, ends[how])
        else:
            train(1 if how == "spawn" else 0, "spawn" if how == "spawn" else None)
        print("trained", *(one for one in sys.meta_path if "gpu_doctor" in str(one)))
        sys.exit(3 if how == "spawn" else 0)
"""
SEES = """
    import atexit, os, signal, sys
    import __main__
    print(sys.argv, __name__, __file__, __package__, __spec__ and __spec__.name, sys.path[0])
    print(__main__.__dict__ is globals(), type(__loader__).__name__)
    print(sorted({*globals()} - {"__annotations__"}))
    @atexit.register
    def last():
        print("last", __main__.__name__, os.getpid() == me)
    me = os.getpid()
    sys.stdout.flush()
    if os.fork() == 0:
        print(signal.getsignal(signal.SIGTERM))
        sys.exit("from the child")
    os.wait()
    def inner():
        annotations: undefined = 1
        raise ValueError("its own")
    inner()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    for name, text in (("trains", TRAINS), ("sees", SEES)):
        for place in (tmp_path / f"{name}.py", tmp_path / "package" / f"{name}.py"):
            place.write_text(textwrap.dedent(text), encoding="utf-8")
    return tmp_path


def python(folder: Path, *line: str) -> subprocess.CompletedProcess[str]:
    """One line of Python's in a folder."""
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *line], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the program forks")
@pytest.mark.parametrize("program", [("sees.py",), ("package/sees.py",), ("-m", "package.sees")], ids=" ".join)
def test_a_program_sees_what_plain_python_shows_it(folder: Path, program: tuple[str, ...]) -> None:
    plain, observed = (python(folder, *how, *program, "--json", "x y") for how in ((), RUN))
    assert observed.stdout == plain.stdout
    assert observed.returncode == plain.returncode == 1
    lines, told = plain.stderr.splitlines(), observed.stderr.splitlines()
    begin = next(i for i, one in enumerate(lines) if "sees.py" in one)  # runpy's frames are none of the module's
    trace = [*lines[:2], *lines[begin:]]
    assert told[: len(trace)] == trace and len(told) == len(trace) + 1


def test_a_script_is_diagnosed_and_its_stdout_is_its_own(folder: Path) -> None:
    ended = python(folder, *RUN, "--save", "run", "--json", "run.json", "--html", "run.html", "trains.py")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["imported as __main__", "trained"]
    assert "40 steps" in ended.stderr and "\x1b" not in ended.stderr
    recording = gpu_doctor.load(folder / "run.npz")
    assert recording.outcome == "completed" and recording.name == "trains.py"
    assert json.loads((folder / "run.json").read_text())["verdict"] == gpu_doctor.diagnose(recording).verdict
    assert "gpu-doctor-static" in (folder / "run.html").read_text(encoding="utf-8")


def test_a_place_that_is_gone_costs_neither_the_diagnosis_nor_the_other_files(folder: Path) -> None:
    (folder / "gone").mkdir()
    places = ("--save", "gone/run.npz", "--html", "gone/run.html", "--json", "run.json")
    ended = python(folder, *RUN, *places, "trains.py", "--how", "removes")
    assert ended.returncode == 0
    assert [place in ended.stderr for place in ("run.npz'", "run.html'", "40 steps")] == [True] * 3
    assert json.loads((folder / "run.json").read_text())["verdict"]


@pytest.mark.parametrize(
    ("how", "code", "outcome"),
    [
        ("raises", 1, "failed"),
        ("interrupted", 130, "interrupted"),
        ("terminated", -signal.SIGTERM, "interrupted"),
    ],
)
def test_a_script_that_ends_early_leaves_its_result(folder: Path, how: str, code: int, outcome: str) -> None:
    ended = python(folder, *RUN, "--save", "run.npz", "trains.py", "--how", how)
    assert ended.returncode == code, ended.stderr
    recording = gpu_doctor.load(folder / "run.npz")
    assert recording.outcome == outcome and len(recording.steps) >= 25
    assert "steps" in ended.stderr and "gpu_doctor/" not in ended.stderr
    assert ("Traceback" in ended.stderr) is (how in ("raises", "interrupted"))


def test_a_script_that_closes_its_stderr_leaves_its_results(folder: Path) -> None:
    ended = python(folder, *RUN, "--save", "run.npz", "--json", "run.json", "trains.py", "--how", "closes")
    assert ended.returncode == 0 and ended.stderr == ""
    assert (folder / "run.npz").is_file() and (folder / "run.json").is_file()


def test_a_script_that_changes_its_folder_leaves_its_results_where_they_were_asked_for(folder: Path) -> None:
    asked = ("--save", "run.npz", "--json", "run.json", "--html", "run.html")
    ended = python(folder, *RUN, *asked, "trains.py", "--how", "moves")
    assert ended.returncode == 0 and (folder / "elsewhere").is_dir()
    assert {"run.npz", "run.json", "run.html"} <= {one.name for one in folder.iterdir()}


def test_ranks_that_a_script_names_for_others_later_do_not_change_where_its_recording_goes(folder: Path) -> None:
    ended = python(folder, *RUN, "--save", "run.npz", "--json", "run.json", "trains.py", "--how", "launches")
    assert ended.returncode == 0 and "40 steps" in ended.stderr
    assert len(gpu_doctor.load(folder / "run.npz").steps) == 40 and (folder / "run.json").is_file()


def test_a_module_and_its_spawned_worker_find_their_main(folder: Path) -> None:
    ended = python(folder, *RUN, "-m", "package.trains", "--how", "spawn")
    assert ended.returncode == 3, ended.stderr
    assert ended.stdout.splitlines() == ["imported as __main__", "imported as __mp_main__", "trained"]
    assert "40 steps" in ended.stderr
