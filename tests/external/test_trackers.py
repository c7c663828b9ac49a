"""Trials of cells that report to experiment trackers, with each of them that is installed, in a process of its own.

A program is what people write for a tracker: a cell that ran before, and a training cell; offline, in a folder of its
own. `python -m tests.external.test_trackers NAME` runs one in this process: the earlier cell as it is, then the
training cell as a trial's side would, under an audit hook. It prints what the side opened for writing, connected to or
started, and what changed in the folder. The other trackers are tried by their modules' shape in
tests/unit/trials/test_trackers.py.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import torch

from gpu_doctor.trials.side_effects.trackers import unlogged
from tests.support.repository import ROOT

TENSORBOARD: Final = """
old.add_scalar("loss", 1.0, 2)
kept("loss", 1.0, 3)
old.flush()
with SummaryWriter("runs/new") as new:
    new.add_scalar("loss", 1.0, 0)
    new.add_text("a", "b")
    new.file_writer.flush()
new.close()
mine = Mine("runs/mine")
mine.both("loss", 1.0)
folder = new.log_dir if hasattr(old, "log_dir") else new.logdir
assert os.path.isdir(folder) and isinstance(new, SummaryWriter)
assert not hasattr(old, "get_logdir") or new.get_logdir() == folder
assert mine.calls == 1 and mine.doubled(2) == 4
old.close()
"""
TENSORBOARD_BEFORE: Final = """
old = SummaryWriter("runs/old")
old.add_scalar("loss", 1.0, 0)
kept = old.add_scalar
old.flush()

class Mine(SummaryWriter):
    def __init__(self, where):
        super().__init__(where)
        self.calls = 0
    def both(self, name, value):
        self.calls += 1
        self.add_scalar(name, value)
    def doubled(self, value):
        return 2 * value
"""


@dataclass(frozen=True)
class Program:
    """Two cells."""

    needs: str
    """The module without which it cannot run."""
    before: str
    cell: str
    after: str = ""
    """What holds afterwards."""
    surroundings: dict[str, str] = field(default_factory=dict)
    trackers: tuple[str, ...] = ()
    """Those of the table that are said to have got nothing."""


@dataclass
class Seen:
    """What a side did outside of the process' own memory."""

    events: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    """Files of the folder that are new, gone or other, once everything was closed for the side."""
    notes: list[str] = field(default_factory=list)


PROGRAMS: Final = {
    **{
        package: Program(
            package.rpartition(".")[2],
            f"import os\nfrom {package} import SummaryWriter\n{TENSORBOARD_BEFORE}",
            TENSORBOARD,
            after="old.add_scalar('loss', 5.0, 9); old.close()",
            trackers=("TensorBoard",),
        )
        for package in ("torch.utils.tensorboard", "tensorboardX")
    },
    "wandb": Program(
        "wandb",
        "import wandb\nrun = wandb.init(project='p', mode='offline', config={'lr': 0.5})\nwandb.log({'loss': 1})\n"
        "log = wandb.log\n",
        """
wandb.log({'loss': 2}); run.log({'loss': 3}); log({'loss': 4})
assert wandb.config.lr == 0.5 and run.id == wandb.run.id and run.config['lr'] == 0.5
wandb.config.update({'extra': 1}); wandb.config.other = 2
assert wandb.config.extra == 1 and wandb.config.other == 2
run.name = 'other'; wandb.summary['best'] = 1; run.tags = ('a',)
wandb.define_metric('loss', summary='min'); wandb.watch(model)
wandb.finish()
with wandb.init(project='p', config={'lr': 0.1, 'depth': 3}) as inner:
    inner.log({'loss': 1}); wandb.log({'loss': 2})
    assert wandb.config.lr == 0.1 and inner.config['depth'] == 3
    f"{inner.id} {inner.name} {inner.step + 1}"; os.path.join(inner.dir, 'x')
wandb.finish()
""",
        after="assert wandb.run is run and wandb.config.keys() == ['lr'] and wandb.log == log\n"
        "wandb.log({'loss': 5}); run.finish()",
        surroundings={"WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false", "WANDB_DATA_DIR": "data"},
        trackers=("wandb",),
    ),
    "wandb, first loaded by the trial": Program(
        "wandb",
        "import os",
        """
import wandb
wandb.init(project='p', config={'lr': 0.1})
for step in range(3):
    wandb.log({'loss': wandb.config.lr})
wandb.finish()
""",
        after="assert wandb.run is None",
        surroundings={"WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"},
    ),
    "mlflow": Program(
        "mlflow",
        "import mlflow\nfrom mlflow import log_metric\nmlflow.set_tracking_uri('file:runs')\nrun = mlflow.start_run()\n"
        "log_metric('loss', 1.0)\nclient = mlflow.MlflowClient()\n",
        """
mlflow.set_experiment('other')
mlflow.log_metric('loss', 2.0, step=1); log_metric('loss', 3.0, step=2); mlflow.log_params({'lr': 1})
client.log_metric(run.info.run_id, 'loss', 4.0)
assert mlflow.active_run().info.run_id == run.info.run_id
mlflow.log_artifact('file.txt'); mlflow.set_tag('a', 'b')
mlflow.end_run()
with mlflow.start_run(run_name='inner') as inner:
    mlflow.log_metric('loss', 1.0)
    f'{inner.info.run_id}'
    assert mlflow.active_run() is inner
mlflow.MlflowClient().create_run('0')
""",
        after="assert mlflow.active_run().info.run_id == run.info.run_id\nmlflow.end_run()",
        surroundings={"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"},
        trackers=("mlflow",),
    ),
    "comet": Program(
        "comet_ml",
        "import comet_ml\nold = comet_ml.OfflineExperiment(project_name='p', offline_directory='offline', "
        "log_code=False, log_git_metadata=False, log_env_details=False, auto_output_logging=False)\n"
        "old.log_metric('loss', 1.0)\n",
        """
old.log_metric('loss', 2.0, step=1); old.log_parameters({'lr': 1})
with old.train():
    old.log_metric('loss', 3.0)
old.end()
new = comet_ml.OfflineExperiment(project_name='p', offline_directory='offline')
new.log_metric('loss', 1.0); new.set_name('x'); new.end()
started = comet_ml.start(project_name='p', online=False)
started.log_metrics({'a': 1}); f'{started.get_key()} {started.id}'
assert comet_ml.get_running_experiment() is started
""",
        after="assert comet_ml.get_running_experiment() is old\nold.end()",
        surroundings={"COMET_LOGGING_CONSOLE": "ERROR", "COMET_API_KEY": "x"},
        trackers=("comet",),
    ),
    "clearml": Program(
        "clearml",
        "from clearml import Task, Logger, OutputModel\nTask.set_offline(True)\nold = Task.init('p', 'old', "
        "auto_connect_frameworks=False, auto_resource_monitoring=False, auto_connect_streams=False)\n"
        "old.get_logger().report_scalar('a', 'b', 1.0, 0)\nold._wait_for_repo_detection(60)\n",
        """
old.get_logger().report_scalar('a', 'b', 2.0, 1)
Logger.current_logger().report_text('hello')
assert old.connect({'lr': 0.5}) == {'lr': 0.5}
old.upload_artifact('a', {'b': 1}); old.close()
new = Task.init('p', 'new')
given = new.connect({'lr': 0.1}, name='arguments')
assert given['lr'] == 0.1 and new.name == 'new' and Task.current_task() is new
new.get_logger().report_scalar('a', 'b', 1.0, 0); OutputModel(task=new).update_weights('file.txt')
new.close()
""",
        after="assert Task.current_task() is old\nold.close()",
        surroundings={"CLEARML_CACHE_DIR": "{folder}/cache", "CLEARML_OFFLINE_MODE": "1"},
        trackers=("clearml",),
    ),
    "swanlab": Program(
        "swanlab",
        "import swanlab\nold = swanlab.init(project='p', mode='offline', log_dir='swanlog', config={'lr': 0.5})\n"
        "swanlab.log({'loss': 1.0})\n",
        """
swanlab.log({'loss': 2.0}); old.log({'loss': 3.0})
assert swanlab.config['lr'] == 0.5
swanlab.finish()
new = swanlab.init(project='p', mode='offline', config={'lr': 0.1, 'depth': 2})
swanlab.log({'loss': 1.0}); new.log({'loss': 1.0})
assert swanlab.config.depth == 2 and new.config['lr'] == 0.1
swanlab.finish()
""",
        after="assert swanlab.config['lr'] == 0.5\nswanlab.log({'loss': 4.0}); swanlab.finish()",
        surroundings={"SWANLAB_LOG_DIR": "swanlog", "SWANLAB_SAVE_DIR": "swanlab"},
        trackers=("swanlab",),
    ),
    "trackio": Program(
        "trackio",
        "import trackio",
        """
new = trackio.init(project='p', config={'lr': 0.1}, embed=False)
trackio.log({'loss': 1.0}); new.log({'loss': 2.0}); f'{new.name}'
assert new.config['lr'] == 0.1
trackio.finish()
""",
        surroundings={"TRACKIO_DIR": "trackio"},
        trackers=("trackio",),
    ),
    "neptune": Program(
        "neptune",
        "import neptune\nold = neptune.init_run(mode='offline', project='a/b', capture_stdout=False, "
        "capture_stderr=False, capture_hardware_metrics=False, capture_traceback=False, source_files=[])\n"
        "old['loss'].append(1.0)\nloss = old['loss']\n",
        """
old['loss'].append(2.0); loss.append(3.0); old['lr'] = 1.0
old.stop()
new = neptune.init_run(mode='offline', project='a/b')
new['loss'].append(1.0); new['parameters'] = {'lr': 1}; f"{new['sys/id'].fetch()}"
new.stop()
""",
        after="old['loss'].append(4.0); old.stop()",
        trackers=("neptune",),
    ),
    "neptune 3": Program(
        "neptune_scale",
        "from neptune_scale import Run",
        """
new = Run(project='a/b', api_token='x', experiment_name='e', mode='offline')
new.log_metrics({'loss': 1.0}, step=1); new.log_configs({'lr': 1})
new.close()
""",
        trackers=("neptune",),
    ),
    "aim": Program(
        "aim",
        "from aim import Run\nold = Run(repo='.', system_tracking_interval=None, log_system_params=False)\n"
        "old.track(1.0, name='loss', step=0)\n",
        """
old.track(2.0, name='loss', step=1); old['hparams'] = {'lr': 1}
new = Run(repo='.', system_tracking_interval=None)
new['hparams'] = {'lr': 1}; new.track(1.0, name='loss'); f'{new.hash}'
new.close()
""",
        after="old.track(3.0, name='loss', step=2); old.close()",
        surroundings={"AIM_UI_TELEMETRY_ENABLED": "0", "HOME": "."},
        trackers=("aim",),
    ),
    "transformers": Program(
        "transformers",
        """
import transformers
os.mkdir('out')
from torch.utils.tensorboard import SummaryWriter
from transformers.integrations.integration_utils import TensorBoardCallback
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.net = torch.nn.Linear(4, 4)
    def forward(self, x):
        return {'loss': self.net(x).pow(2).sum()}
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, index):
        return {'x': torch.ones(4)}
""",
        """
args = transformers.TrainingArguments('out', report_to=['tensorboard'], logging_steps=1, save_strategy='no',
    use_cpu=True, max_steps=3, per_device_train_batch_size=4, disable_tqdm=True, logging_strategy='steps')
transformers.Trainer(Net(), args, train_dataset=Rows()).train()
""",
        trackers=("TensorBoard",),
    ),
}
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
_EVENTS: Final = ("socket.connect", "socket.sendto", "os.remove")


def side_of(name: str, aloud: bool = False) -> Seen:
    """Runs a program in this process and says what its side did; `aloud`: nothing is held back."""
    program, seen = PROGRAMS[name], Seen()
    space: dict[str, Any] = {"torch": torch, "os": os, "model": torch.nn.Linear(4, 4), "__name__": "__main__"}
    Path("file.txt").write_text("x")
    exec(compile(program.before, "<before>", "exec"), space)
    code = compile(program.cell, "<cell>", "exec")
    with _recorded(seen.events), nullcontext() if aloud else unlogged(seen.notes):
        before = _folder()
        exec(code, space)
    now = _folder()
    seen.changed = sorted(path for path in {*before, *now} if before.get(path) != now.get(path))
    exec(compile(program.after, "<after>", "exec"), space)
    return seen


@contextmanager
def _recorded(events: list[str]) -> Iterator[None]:
    going = [True]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if going and (event in _EVENTS or (event == "open" and _is_writing(*arguments))):
            events.append(f"{event} {arguments[0]!s:.100}" if event != "socket.connect" else f"{event} {arguments[1]}")

    sys.addaudithook(hook)
    try:
        yield
    finally:
        going.clear()


def _is_writing(path: Any, mode: Any, flags: Any) -> bool:
    kept = isinstance(path, str) and path.startswith(("/dev/", "/proc/"))
    return not kept and "__pycache__" not in str(path) and isinstance(flags, int) and bool(flags & _WRITES)


def _folder() -> dict[str, bytes]:
    files = (path for path in sorted(Path().rglob("*")) if path.is_file() and path.suffix != ".log")
    return {str(path): path.read_bytes() for path in files}


def seen_of(name: str, *arguments: str) -> Seen:
    """What a program's side did, in a process of its own."""
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.external.test_trackers", name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=surroundings, timeout=240)
    printed = [line for line in done.stdout.splitlines() if line.startswith("SEEN ")]
    assert printed, f"{done.stdout}\n{done.stderr}"
    return Seen(**json.loads(printed[-1].removeprefix("SEEN ")))


TESTED = ("tensorboard", "tensorboardX", "transformers")
"""Trackers that belong to the tested set (constraints.txt); the others run where they are installed."""
HERE = [name for name, one in PROGRAMS.items() if one.needs in TESTED or importlib.util.find_spec(one.needs)]


@pytest.mark.parametrize("name", HERE)
def test_no_point_file_or_request_of_a_trial_reaches_a_tracker(name: str) -> None:
    program = PROGRAMS[name]
    seen = seen_of(name)
    assert seen.events == [] and seen.changed == []
    assert seen.notes == [f"{tracker}: the trial logged nothing there." for tracker in program.trackers]


def test_a_report_that_is_not_held_back_would_be_seen() -> None:
    seen = seen_of("tensorboardX", "--aloud")
    assert any(path.startswith("runs/new") for path in seen.changed) and seen.events


def main() -> None:
    """Runs one program and prints what was seen as JSON."""
    name = sys.argv[1]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        variables = PROGRAMS[name].surroundings.items()
        os.environ.update({key: value.replace("{folder}", folder) for key, value in variables})
        os.chdir(folder)
        print("\nSEEN", json.dumps(asdict(side_of(name, "--aloud" in sys.argv))), flush=True)
        os.chdir("/")


if __name__ == "__main__":
    main()
