"""Cures as a framework's own arguments: the fixed cells are run for real, and the recording has the settings."""

from __future__ import annotations

import importlib.util
from typing import Any, Final

import pytest
import torch

import gpu_doctor
from gpu_doctor.cell.fix import Fix
from gpu_doctor.recording import Recording, Setup
from gpu_doctor.recording.steps import TRAINING
from gpu_doctor.trials import fix as fixing
from tests.support.leftovers import one_thread as one_thread

# The frameworks warn of few workers, small data and loggers that are not installed: theirs to say, in a cell like this.
PRELUDE: Final = """import logging, os, warnings
warnings.simplefilter("ignore")
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
torch.set_num_threads(1)
dtypes = set()

class Rows(Dataset):
    def __init__(self, n):
        self.x = torch.randn(n, 8)
    def __len__(self):
        return len(self.x)
    def __getitem__(self, i):
        return {"x": self.x[i], "labels": self.x[i, :1]}
"""
HUGGING_FACE: Final = [
    PRELUDE
    + """import transformers
from transformers import Trainer, TrainingArguments
transformers.logging.set_verbosity_error()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 1)
    def forward(self, x, labels=None):
        out = self.head(x)
        dtypes.add(str(out.dtype))
        return {"loss": nn.functional.mse_loss(out.float(), labels), "logits": out}
model = Net()
""",
    """args = TrainingArguments(
    output_dir=folder,
    max_steps=6,  # short
    per_device_train_batch_size=8,
    report_to=[], save_strategy="no", disable_tqdm=True,
    use_cpu=True
)
""",
    "trainer = Trainer(model=model, args=args, train_dataset=Rows(96))\nresult = trainer.train()\n",
]
LIGHTNING: Final = [
    PRELUDE
    + """import lightning
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
lightning.seed_everything(1, verbose=False)

class Lit(lightning.LightningModule):
    def __init__(self, lr=1e-2):
        super().__init__()
        self.lr, self.net = lr, nn.Linear(8, 1)
    def training_step(self, batch, index):
        return nn.functional.mse_loss(self.net(batch["x"]), batch["labels"])
    def validation_step(self, batch, index):
        self.log("held_out", nn.functional.mse_loss(self.net(batch["x"]), batch["labels"]))
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)
""",
    """class Data(lightning.LightningDataModule):
    def __init__(self, batch_size=8):
        super().__init__()
        self.batch_size = batch_size
    def setup(self, stage=None):
        self.train, self.val = Rows(96), Rows(16)
    def train_dataloader(self):
        return DataLoader(self.train, batch_size=self.batch_size, shuffle=True)
    def val_dataloader(self):
        return DataLoader(self.val, batch_size=self.batch_size)
""",
    """trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", logger=False,
                            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Lit(), datamodule=Data())
""",
]
ACCELERATE: Final = [
    PRELUDE + "from accelerate import Accelerator\naccelerator = Accelerator(cpu=True)\n",
    """model = nn.Sequential(nn.Linear(8, 1))
model[0].register_forward_hook(lambda module, args, out: dtypes.add(str(out.dtype)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(Rows(96), batch_size=8)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
""",
    """for batch in loader:
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(batch["x"]), batch["labels"])
    accelerator.backward(loss)
    optimizer.step()
""",
]
SKORCH: Final = [
    PRELUDE
    + """from skorch import NeuralNetRegressor
x = torch.randn(96, 8)
net = NeuralNetRegressor(nn.Linear, module__in_features=8, module__out_features=1, max_epochs=1, verbose=0,
                         train_split=None, batch_size=8)
""",
    "net.fit(x.numpy(), x[:, :1].numpy())\n",
]


def ran(cells: list[str], folder: Any) -> tuple[gpu_doctor.Case, Recording]:
    """Runs cells one after another in a namespace of their own; the last one is recorded."""
    namespace: dict[str, Any] = {"__name__": "__main__", "folder": str(folder)}
    for cell in cells[:-1]:
        exec(compile(cell, "<cell>", "exec"), namespace)
    case = gpu_doctor.case(cells[-1], namespace)
    return case, case.run()


def cured(cells: list[str], settings: dict[str, Any], folder: Any) -> tuple[Fix, list[str], Setup, set[str]]:
    """The fix, the cells with it, what a real run of them found, and in which dtypes its model computed."""
    if importlib.util.find_spec("accelerate") is not None:
        from accelerate.state import AcceleratorState

        AcceleratorState._reset_state(reset_partial_state=True)  # it is one for the whole process
    case, _ = ran(cells, folder)
    fix = case.fix(settings, cells[:-1])
    after = {one.before: one.after for one in fix.cells}
    fixed = [after.get(cell, cell) for cell in cells]
    if importlib.util.find_spec("accelerate") is not None:
        AcceleratorState._reset_state(reset_partial_state=True)
    again, recording = ran(fixed, folder)
    return fix, fixed, recording.setup, again.namespace["dtypes"]


def test_training_arguments_of_transformers(tmp_path: Any) -> None:
    pytest.importorskip("transformers")
    settings = {
        "num_workers": 1,
        "batch_size": 4,
        "pin_memory": False,
        "persistent_workers": True,
        "prefetch_factor": 3,
        "amp": "bf16",
        "fused_optimizer": True,
    }
    fix, cells, setup, dtypes = cured(HUGGING_FACE, settings, tmp_path)
    assert fix.complete and not fix.notes, str(fix)
    loader, facts = setup.training_loader, setup.optimizer_facts
    assert loader is not None and facts
    assert (loader.num_workers, loader.batch_size, loader.pin_memory) == (1, 4, False)
    assert (loader.persistent_workers, loader.prefetch_factor) == (True, 3)
    assert dtypes == {"torch.bfloat16"} and facts[0].fused
    assert cells[0] == HUGGING_FACE[0] and cells[2] == HUGGING_FACE[2]
    assert "    max_steps=6,  # short\n    per_device_train_batch_size=4,\n" in cells[1]
    assert "    use_cpu=True,\n    dataloader_num_workers=1,\n" in cells[1] and "fp16" not in cells[1]
    back, again, setup, dtypes = cured(cells, {"num_workers": 0, "amp": "off", "fused_optimizer": False}, tmp_path)
    loader, facts = setup.training_loader, setup.optimizer_facts
    assert back.complete and loader is not None and facts, str(back)
    assert (loader.num_workers, loader.prefetch_factor, dtypes) == (0, None, {"torch.float32"}) and not facts[0].fused
    assert "dataloader_prefetch_factor=None" in again[1] and "bf16=False" in again[1]


def test_a_data_module_and_the_trainer_of_lightning(tmp_path: Any) -> None:
    pytest.importorskip("lightning")
    settings = {"num_workers": 1, "batch_size": 4, "amp": "bf16", "fused_optimizer": True, "persistent_workers": True}
    fix, cells, setup, _ = cured(LIGHTNING, settings, tmp_path)
    assert fix.complete, str(fix)
    loader, facts = setup.training_loader, setup.optimizer_facts
    assert loader is not None and facts
    assert (loader.num_workers, loader.batch_size, loader.persistent_workers) == (1, 4, True)
    assert setup.autocast == "bfloat16" and facts[0].fused
    held_out = [one for one in setup.loaders if one.role == "evaluation"]
    assert [(one.num_workers, one.batch_size) for one in held_out] == [(0, 8)]
    assert 'enable_model_summary=False, precision="bf16-mixed")' in cells[2]
    assert "DataLoader(self.val, batch_size=self.batch_size)\n" in cells[1]


def test_an_accelerator_of_accelerate(tmp_path: Any) -> None:
    pytest.importorskip("accelerate")
    fix, cells, setup, dtypes = cured(ACCELERATE, {"num_workers": 1, "batch_size": 4, "amp": "bf16"}, tmp_path)
    assert fix.complete, str(fix)
    loader = setup.training_loader
    assert loader is not None and (loader.num_workers, loader.batch_size) == (1, 4)
    assert dtypes == {"torch.bfloat16"} and 'Accelerator(cpu=True, mixed_precision="bf16")' in cells[0]
    assert cells[2] == ACCELERATE[2]


def test_a_net_of_skorch(tmp_path: Any) -> None:
    pytest.importorskip("skorch")
    fix, cells, setup, _ = cured(SKORCH, {"num_workers": 1, "batch_size": 4}, tmp_path)
    assert fix.complete, str(fix)
    loader = setup.training_loader
    assert loader is not None and (loader.num_workers, loader.batch_size) == (1, 4)
    assert "train_split=None, batch_size=4, iterator_train__num_workers=1)" in cells[0]


@pytest.mark.parametrize(
    ("cells", "settings", "said"),
    [
        (
            ["a = transformers.TrainingArguments('a')\nb = transformers.TrainingArguments('b')\n", "trainer.train()\n"],
            {"num_workers": 2},
            "line 1 of earlier cell 2 and line 2 of",
        ),
        (
            ["given = load()\nargs = transformers.TrainingArguments(*given)\n", "trainer.train()\n"],
            {"num_workers": 2},
            "",
        ),
    ],
)
def test_what_cannot_be_told_is_said_with_the_lines_to_paste(
    cells: list[str], settings: dict[str, Any], said: str
) -> None:
    fix = fixing.fix(["import transformers\n", *cells], settings, Setup(), lambda name: f"paste {name}")
    if said:
        (note,) = fix.notes
        assert "TrainingArguments" in note and said in note
        assert not fix.complete and fix.paste == "paste num_workers"
    else:
        assert "dataloader_num_workers=2" in fix.cells[0].after


def test_a_training_loader_made_for_the_framework_is_changed_where_it_is_made() -> None:
    own = (
        "import transformers\nfrom torch.utils.data import DataLoader\nclass Mine(transformers.Trainer):\n"
        "    def get_train_dataloader(self):\n        return DataLoader(self.train_dataset, 8)\n"
        "args = transformers.TrainingArguments('a')\n"
    )
    fix = fixing.fix([own, "Mine(args=args).train()\n"], {"num_workers": 2}, Setup(), str)
    assert "DataLoader(self.train_dataset, 8, num_workers=2)" in fix.cells[0].after
    assert "dataloader_num_workers" not in fix.cells[0].after


# ---- a model that is handed to a trainer ----------------------------------------------------------------------------

IMAGES: Final = """
layouts, compiled = set(), []
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 1)
    def forward(self, x, labels=None):
        images = x[:, :3, None, None].repeat(1, 1, 4, 4)
        out = self.conv(images)
        layouts.add(out.is_contiguous(memory_format=torch.channels_last) and not out.is_contiguous())
        out = self.head(out.mean((2, 3)))
        return {"loss": nn.functional.mse_loss(out, labels), "logits": out}
"""
LIT_IMAGES: Final = [
    LIGHTNING[0].replace("class Lit(", IMAGES + "class Lit(").replace("nn.Linear(8, 1)", "Net()")
    .replace('nn.functional.mse_loss(self.net(batch["x"]), batch["labels"])', 'self.net(**batch)["loss"]'),
    *LIGHTNING[1:],
]  # fmt: skip
HF_IMAGES: Final = [HUGGING_FACE[0] + IMAGES + "model = Net()\n", *HUGGING_FACE[1:]]


@pytest.mark.parametrize("cells", [LIT_IMAGES, HF_IMAGES], ids=["lightning", "transformers"])
def test_images_go_channels_last_into_a_trainer(cells: list[str], tmp_path: Any) -> None:
    """Weights that are channels last make a convolution work and answer so, whatever the images are stored like."""
    pytest.importorskip("lightning" if cells is LIT_IMAGES else "transformers")
    case, _ = ran(cells, tmp_path)
    assert case.namespace["layouts"] == {False}
    fix = case.fix({"channels_last": True}, cells[:-1])
    assert fix.complete and not fix.notes, str(fix)
    fixed = [next((one.after for one in fix.cells if one.before == cell), cell) for cell in cells]
    again, _ = ran(fixed, tmp_path)
    assert again.namespace["layouts"] == {True}, fixed[-1]


def test_a_module_of_lightning_is_compiled_on_its_way_into_the_trainer(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its training_step is not called as a forward, so model.compile() alone would compile nothing."""
    pytest.importorskip("lightning")
    fix = fixing.fix(LIGHTNING, {"compile": True}, Setup(), str)
    assert fix.complete and fix.cells[-1].after.endswith("trainer.fit(torch.compile(Lit()), datamodule=Data())\n")
    made: list[Any] = []
    whole = torch.compile

    def eager(model: Any, **options: Any) -> Any:  # without a compiler of C++
        made.append(whole(model, backend="eager", **options))
        return made[-1]

    monkeypatch.setattr(torch, "compile", eager)
    _, recording = ran([*LIGHTNING[:-1], fix.cells[-1].after], tmp_path)
    assert len(made) == 1 and int((recording.steps.kind == TRAINING).sum()) == 12
    torch._dynamo.reset()


def test_a_model_that_cannot_be_told_is_said() -> None:
    cells = ["import lightning, torch\ntrainer = lightning.Trainer()\n", "trainer.fit(a)\ntrainer.fit(b)\n"]
    fix = fixing.fix(cells, {"channels_last": True}, Setup(), lambda name: f"paste {name}")
    assert "line 1 of this cell and line 2 of this cell" in fix.notes[0]
    assert fix.paste == "paste channels_last"
    one = ["import lightning\ntrainer = lightning.Trainer()\n", "trainer.fit(a or b)\n"]
    fix = fixing.fix(one, {"channels_last": True}, Setup(), str)
    assert fix.cells[0].after == "import torch\ntrainer.fit((a or b).to(memory_format=torch.channels_last))\n"


def test_a_net_of_skorch_compiles_itself() -> None:
    skorch = pytest.importorskip("skorch")
    known = {"NeuralNetRegressor": skorch.NeuralNetRegressor}
    fix = fixing.fix(SKORCH, {"compile": True}, Setup(), str, known)
    assert fix.complete and "batch_size=8, compile=True)" in fix.cells[0].after
