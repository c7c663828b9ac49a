"""A kernel that is killed in a trial, at whatever moment, leaves the user's files as they were."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import pytest

from gpu_doctor.trials import remove_scratch_folders
from tests.support.files_before import digest

pytestmark = pytest.mark.slow

KERNEL = """
import os, sqlite3, threading, torch
import gpu_doctor
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self): return 64
    def __getitem__(self, at):
        with open(f"cache-{at % 4}.txt", "a") as file:
            file.write("x")
        return torch.ones(3)

model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
loader = DataLoader(Rows(), 4, num_workers=1)
CELL = '''
os.makedirs("made", exist_ok=True)
database = sqlite3.connect("runs.db")
for number, rows in enumerate(loader):
    optimizer.zero_grad(); model(rows).sum().backward(); optimizer.step()
    torch.save(model.state_dict(), "tmp.pt")
    os.replace("tmp.pt", "best.pt")
    with open("train.log", "a") as log:
        log.write("a line of the trial" * 500)
    database.execute("insert into losses values (1)"); database.commit()
    os.remove("old.txt"); open("old.txt", "w").close()
    open("made/x.txt", "w").close()
database.close()
'''
case = gpu_doctor.case(CELL, globals())
print("ready", flush=True)
while True:
    effect = case.trial({"num_workers": 0}, steps=20, seconds=5, pairs=2)
    assert effect.outcome in ("completed", "budget-reached"), effect
    print("trial", flush=True)
"""


def prepared(folder: Path) -> None:
    for name in ("best.pt", "train.log", "old.txt", "cache-0.txt"):
        (folder / name).write_text("the user's\n")
    with closing(sqlite3.connect(folder / "runs.db")) as database, database:
        database.execute("create table losses (v)")


def scratch_folders(pid: int) -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob(f"gpu_doctor-side-*-{pid}-*"))


@pytest.mark.skipif(os.name != "posix", reason="a SIGKILL")
def test_killed_at_several_moments(tmp_path: Path) -> None:
    script, folder = tmp_path / "kernel.py", tmp_path / "user"
    script.write_text(KERNEL)
    folder.mkdir()
    prepared(folder)
    before = digest(folder)
    root = Path(__file__).parents[2]
    left = 0
    for moment in (0.0, 0.2, 1.0, "after a whole trial"):
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(script)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(root)},
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            if isinstance(moment, str):
                assert process.stdout.readline() == "trial\n"
            else:
                while not scratch_folders(process.pid) and process.poll() is None:
                    time.sleep(0.005)
                time.sleep(moment)
            with (folder / "train.log").open("a") as log:
                log.write("another process\n")
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        left += bool(scratch_folders(process.pid))
        remove_scratch_folders()
        assert scratch_folders(process.pid) == []
    now = digest(folder)
    assert (folder / "train.log").read_text() == "the user's\n" + "another process\n" * 4
    assert now.pop("train.log")[3] == before.pop("train.log")[3] and now == before
    assert left
