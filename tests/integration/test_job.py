"""A job of two real ranks by gloo: a straggler is found, and what a killed one leaves is said."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import gpu_doctor
from gpu_doctor.job import Job
from tests.support.rank_jobs import LATE_S
from tests.support.repository import ROOT

pytestmark = pytest.mark.slow

RANKS = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2")
PROGRAM = str(ROOT / "tests" / "support" / "rank_jobs.py")


def ran(*words: str) -> subprocess.CompletedProcess[str]:
    """Two ranks of the program, or of the command in front of it."""
    return subprocess.run([sys.executable, "-m", *RANKS, *words], capture_output=True, text=True, timeout=120, cwd=ROOT)


def test_a_straggler_under_torchrun_and_the_command(tmp_path: Path) -> None:
    done = ran("-m", "gpu_doctor", "run", "--save", str(tmp_path / "job"), PROGRAM, "late-data")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("gpudoctor report") == 1, "rank 0 alone says where to look"
    job = gpu_doctor.load(tmp_path / "job")
    assert isinstance(job, Job) and len(job.ranks) == job.world_size == 2 and not job.missing
    found = job.waiting
    assert (found.straggler, found.phase) == (1, "data_wait")
    assert found.late_s == pytest.approx(LATE_S, rel=0.35)
    assert (job.ranks[0].phases_s["backward"] or 0.0) > 0.5 * LATE_S


def test_a_killed_rank_is_missing_and_the_other_one_was_cut_off(tmp_path: Path) -> None:
    assert ran(PROGRAM, "killed", str(tmp_path)).returncode != 0
    job = gpu_doctor.load(tmp_path)
    assert [(one.number, one.runs) for one in job.missing] == [(1, False)] and job.missing[0].began_at is not None
    assert [(one.number, one.outcome != "completed") for one in job.ranks] == [(0, True)]


def test_one_file_for_all_ranks_is_refused(tmp_path: Path) -> None:
    done = ran("-m", "gpu_doctor", "run", "--save", str(tmp_path / "one.npz"), PROGRAM, "equal")
    assert done.returncode != 0 and "name a folder" in done.stderr and not list(tmp_path.iterdir())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_rank_that_is_forked_from_a_run_records_itself(tmp_path: Path) -> None:
    """As `notebook_launcher` does in a cell that is diagnosed; a run that goes on is none of the rank's."""
    program = """
        import os, sys
        import gpu_doctor
        from gpu_doctor.capture.patching import active

        with gpu_doctor.watch() as run:
            pid = os.fork()
            if pid == 0:
                with gpu_doctor.watch(folder=sys.argv[1]):
                    pass
                os._exit(len(active()))
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            assert active()
        assert not active() and run.recording.notes == ()
    """
    words = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert [one.number for one in gpu_doctor.load(tmp_path).ranks] == [0]


LAUNCHES = """
import torch, time
def train(rank, late_s):
    model = torch.nn.Linear(64, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in torch.utils.data.DataLoader(torch.rand(320, 64), batch_size=16):
        time.sleep(late_s * rank)
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
    if rank == 2:
        raise ValueError("of the user")
torch.multiprocessing.start_processes(train, args=(0.005,), nprocs={0}, start_method="fork")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_ranks_that_a_cell_launches_stand_side_by_side_in_its_result() -> None:
    program = f"""
        import torch, gpu_doctor
        from gpu_doctor import report
        starts = torch.multiprocessing.start_processes
        case = gpu_doctor.case({LAUNCHES.replace("{0}", "2")!r})
        case.run()
        assert [one.steps for one in case.job.ranks] == [20, 20] and not case.job.missing
        assert torch.multiprocessing.start_processes is starts and "2 ranks" in case.diagnosis.verdict
        told = report.Reported.of(case, case.diagnosis)
        assert "Job of 2 ranks" in report.text(told) and "Job of 2 ranks" in report.html(told)
        failing = gpu_doctor.case({LAUNCHES.replace("{0}", "3")!r})
        try:
            failing.run()
        except torch.multiprocessing.ProcessRaisedException as error:
            assert "ValueError: of the user" in str(error)
        assert [one.outcome for one in failing.job.ranks][2] == "failed"
        import glob, os, tempfile
        there = f"{{tempfile.gettempdir()}}/gpu_doctor-side-*-{{os.getpid()}}-*"
        assert glob.glob(there)
        del case, failing, told
        gpu_doctor.case("pass")
        import gc; gc.collect()
        print("left", len(glob.glob(there)))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-2:] == ["left", "0"]
