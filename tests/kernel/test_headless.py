"""Without a person at the screen: nbconvert, papermill and plain Python scripts run, try and treat a cell for real."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import nbformat
import pytest

from tests.support.jupyter_home import environment
from tests.support.repository import ROOT

pytestmark = pytest.mark.timeout(600)

SECONDS: Final = 300
EARLIER: Final = """import time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)
class Rows(Dataset):
    def __len__(self):
        return 480
    def __getitem__(self, i):
        time.sleep(0.002)
        return torch.ones(4), torch.ones(1)
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
loader = DataLoader(Rows(), batch_size=size)
"""
LOOP: Final = """for x, y in loader:
    opt.zero_grad()
    loss = nn.functional.mse_loss(net(x), y)
    loss.backward()
    opt.step()
print("TRAINED", len(loader))
"""
AFTER: Final = """import gpu_doctor
case = gpu_doctor.last_case()
print("READ", case.recordings[-1].setup.training_loader.num_workers, len(case.recordings[-1].steps))
case.run()
effect = case.trial({"num_workers": 2}, steps=12, seconds=30, pairs=1)
print("TRIAL", effect.outcome, effect.speedup is not None)
plan = case.treat(max_trials=1, steps=12, seconds=10)
print("PLAN", [one.outcome for one in plan.effects])
print("FIX", case.fix({"num_workers": 2}).diff)
"""
"""A trial and a treatment of the cell above; the run as written comes first, since that one was set."""


def notebook(folder: Path, parameters: str = "size = 8\n") -> Path:
    """A small notebook whose second cell is run under the doctor."""
    cells = [
        nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell("%load_ext gpu_doctor\n" + EARLIER),
        nbformat.v4.new_code_cell("%%gpudoctor --no-view --set num_workers=1 --steps 30\n" + LOOP),
        nbformat.v4.new_code_cell(AFTER),
    ]
    made = nbformat.v4.new_notebook(cells=cells)
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path = folder / "train.ipynb"
    nbformat.write(made, path)
    return path


def told(cell: Any) -> str:
    """What a cell printed."""
    return "".join(one.get("text", "") for one in cell.outputs if one.output_type == "stream")


def tried_and_planned(said: str) -> None:
    """Both measured something, whatever a busy machine makes of it; the fix is a line of the cell."""
    assert re.search(r"^TRIAL (budget-reached|completed) True$", said, re.M), said
    assert re.search(r"^PLAN \['(budget-reached|completed)'", said, re.M) and "num_workers=2)" in said, said


def check(executed: Path, batches: int) -> None:
    """The notebook ran as it stands, with its verdict, a trial that was measured, a plan and a fix."""
    cells = nbformat.read(executed, as_version=4).cells
    cells = [
        one for one in cells if one.cell_type == "code" and "injected-parameters" not in one.metadata.get("tags", [])
    ]
    outputs = [one for cell in cells for one in cell.outputs]
    assert not [one for one in outputs if one.output_type == "error" or one.get("name") == "stderr"]
    assert not [one for one in outputs if "application/vnd.jupyter.widget-view+json" in one.get("data", {})]
    shown = [one["data"]["text/html"] for one in cells[2].outputs if "text/html" in one.get("data", {})]
    assert any("gpu-doctor-static" in one for one in shown)
    after = told(cells[3])
    assert "READ 1 30" in after, after
    tried_and_planned(after)
    assert f"TRAINED {batches}" in after and after.count("TRAINED") == 1  # the run as written; trials are silent


@pytest.mark.slow
def test_nbconvert(tmp_path: Path) -> None:
    path = notebook(tmp_path)
    line = [sys.executable, "-m", "jupyter", "nbconvert", "--to", "notebook", "--execute", str(path)]
    done = subprocess.run(
        [*line, "--output", "done.ipynb"], capture_output=True, text=True, timeout=SECONDS, env=environment(tmp_path)
    )
    assert done.returncode == 0, done.stderr[-3000:]
    check(tmp_path / "done.ipynb", 60)


@pytest.mark.slow
def test_papermill_with_another_parameter(tmp_path: Path) -> None:
    path, end = notebook(tmp_path, "size = 480\n"), tmp_path / "done.ipynb"
    line = [sys.executable, "-m", "papermill", str(path), str(end), "-p", "size", "8", "-k", "python3"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS, env=environment(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    check(end, 60)


SCRIPT: Final = f"""size = 8
{EARLIER}
import gpu_doctor

def main():
    case = gpu_doctor.case({LOOP!r}, globals())
    recording = case.run({{"num_workers": 1}}, steps=30)
    print("READ", recording.setup.training_loader.num_workers, len(recording.steps))
    case.run()
    effect = case.trial({{"num_workers": 2}}, steps=12, seconds=30, pairs=1)
    print("TRIAL", effect.outcome, effect.speedup is not None)
    plan = case.treat(max_trials=1, steps=12, seconds=10)
    print("PLAN", [one.outcome for one in plan.effects])
    print("FIX", case.fix({{"num_workers": 2}}, [{EARLIER!r}]).diff)
    print("LEFT", loader.num_workers, torch.get_num_threads())

"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ['if __name__ == "__main__":\n    main()\n', "main()\n"], ids=["guarded", "unguarded"])
def test_a_plain_script(end: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT + end)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=SECONDS, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0 and not done.stderr, done.stderr[-3000:]
    assert "READ 1 30" in done.stdout
    tried_and_planned(done.stdout)
    assert "LEFT 0 1" in done.stdout and done.stdout.count("TRAINED") == 1


TERMINAL: Final = """from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "gpu_doctor")
shell.run_cell("size = 8\\n" + {0!r})
done = shell.run_cell("%%gpudoctor --set num_workers=1 --steps 30\\n" + {1!r})
assert done.success
import gpu_doctor
print("READ", gpu_doctor.last_case().recordings[-1].setup.training_loader.num_workers)
"""


def test_a_shell_without_a_kernel_needs_no_option(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(TERMINAL.format(EARLIER, LOOP))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=SECONDS, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "READ 1" in done.stdout and "Traceback" not in done.stdout + done.stderr
