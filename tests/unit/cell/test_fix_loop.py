"""Cures around the loop as code: autocast, scaling, layouts, switches, run for real, or why not, in words."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import gpu_doctor
from gpu_doctor.recording import LoaderSetup, Setup
from gpu_doctor.trials import fix as fixing
from gpu_doctor.trials.knobs.knob import Refused
from tests.support.patched_cells import IMAGES, LOOP, PRELUDE, TRAIN, fixed, fixed_loop, ran


def test_fp16_scales_the_loss_and_unscales_before_clipping() -> None:
    fix, cell, setup = fixed_loop(TRAIN % "# a cell", {"amp": "fp16"})
    assert fix.complete and setup.autocast == "float16", str(fix)
    assert '\nscaler = torch.amp.GradScaler("cpu")\nfor epoch in range(2):' in cell
    assert (
        "        scaler.scale(loss).backward()\n        scaler.unscale_(optimizer)\n        torch.nn.utils.clip" in cell
    )
    assert "        scaler.step(optimizer)  # once\n        scaler.update()\n" in cell


def test_a_compiled_model(monkeypatch: pytest.MonkeyPatch) -> None:
    written = torch.compile
    monkeypatch.setattr(torch, "compile", lambda model, **how: written(model, **{**how, "backend": "eager"}))
    fix, cell, setup = fixed_loop(TRAIN % "# a cell", {"compile": True})
    assert fix.complete and setup.model is not None and setup.model.compiled
    assert "\nmodel.forward = torch.compile(model.forward)  # the first steps are slow\nfor epoch" in cell


IN_A_FUNCTION = """def train_epoch(net, batches, lossf, opt):
	for x, y in batches:
		opt.zero_grad()
		out = net(x)
		loss = lossf(out, y)
		loss.backward()
		opt.step()

for epoch in range(2):
	train_epoch(model, loader, criterion, opt=optimizer)
"""


def test_a_loop_in_a_function_gets_its_model_where_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    written = torch.compile
    monkeypatch.setattr(torch, "compile", lambda model, **how: written(model, **{**how, "backend": "eager"}))
    fix, cell, setup = fixed_loop(
        IN_A_FUNCTION, {"amp": "fp16", "channels_last": True, "compile": True, "num_workers": 1}
    )
    assert fix.complete, str(fix)
    assert setup.autocast == "float16" and setup.model is not None and setup.model.channels_last == 1
    assert setup.model.compiled and setup.training_loader is not None and setup.training_loader.num_workers == 1
    model = "model.forward = torch.compile(model.forward)  # the first steps are slow\nmodel.to(memory_format="
    assert f"\n{model}torch.channels_last)\nfor epoch" in cell
    assert "\t\t\tout = net(x)\n" in cell


def test_the_loader_that_a_function_is_called_with() -> None:
    earlier = (
        "def train(rows):\n    for x in rows:\n        net(x).sum().backward()\n        opt.step()\n"
        "first, second = DataLoader(ds, 16), DataLoader(ds, 16)\n"
    )
    fix, cells = fixed([earlier, "len(first)\ntrain(second)\n"], {"num_workers": 1})
    assert fix.complete and "first, second = DataLoader(ds, 16), DataLoader(ds, 16, num_workers=1)" in cells[0]


def test_torch_is_imported_where_it_is_not_yet() -> None:
    earlier = (
        IMAGES.replace("import torch\n", "import torch as T\n").replace("torch.opt", "T.opt").replace("torch.r", "T.r")
    )
    earlier = earlier.replace("torch.set_", "T.set_")
    fix, cell, _ = fixed_loop("'''Trains.'''\nimport os\n" + LOOP_OF_IMAGES, {"threads": 1}, earlier)
    assert "import os\nT.set_num_threads(1)\n" in cell
    fix = fixing.fix([LOOP], {"threads": 3}, Setup(), str)
    assert fix.cells[0].after.startswith("import torch\ntorch.set_num_threads(3)\nfor x")


LOOP_OF_IMAGES = "for x, y in loader:\n    loss = criterion(model(x), y)\n    loss.backward()\n    optimizer.step()\n"


def test_own_autocast_is_switched_off_where_it_stands() -> None:
    loop = (
        "import torch\nfor x, y in loader:\n    with torch.autocast('cpu', dtype=torch.bfloat16):\n"
        "        loss = criterion(model(x), y)\n    loss.backward()\n    optimizer.step()\n"
    )
    fix, cell, setup = fixed_loop(loop, {"amp": "off"})
    assert fix.complete and "dtype=torch.bfloat16, enabled=False):" in cell and setup.autocast == ""


def test_every_argument_of_the_loader() -> None:
    settings = {
        "num_workers": 2,
        "prefetch_factor": 3,
        "persistent_workers": True,
        "pin_memory": False,
        "batch_size": 32,
    }
    fix, after = fixed(["loader = DataLoader(ds)\n" + LOOP], settings)
    assert fix.complete
    loader = ran(after)[1].setup.training_loader
    assert loader is not None
    assert {name: getattr(loader, name) for name in settings} == settings


def made() -> Any:
    """A loader whose call is in no cell."""
    namespace: dict[str, Any] = {}
    exec(PRELUDE, namespace)
    return namespace["DataLoader"](namespace["ds"], 16)


def test_what_is_shared_is_said() -> None:
    fix, _ = fixed(
        ["SIZE = 16\ndef make(rows):\n    return DataLoader(rows, batch_size=SIZE)\n"
         "loader, val = make(ds), make(val_ds)\n"
         "print(SIZE)\n" + LOOP],
        {"batch_size": 8},
    )  # fmt: skip
    assert fix.complete
    assert any("created by line 3 of this cell gets batch_size=8" in one for one in fix.notes)
    assert any(one.startswith("SIZE is also used elsewhere (line 5 of") for one in fix.notes)


def test_a_helpers_call_that_gives_each_loader_its_own_size_shares_nothing() -> None:
    cell = "def both(a, b):\n    return DataLoader(ds, a), DataLoader(val_ds, b)\nloader, val = both(16, 4)\n" + LOOP
    seen = LoaderSetup(key="Rows", role="training", batch_size=16)
    fix = fixing.fix([cell], {"batch_size": 8}, Setup(loaders=(seen,)), str)
    assert fix.cells[0].after == cell.replace("both(16, 4)", "both(8, 4)") and not fix.notes, str(fix)


TRAINER = """class Trainer:
    def __init__(self, model, rows, bs=16):
        self.model = model
        self.loader = DataLoader(rows, batch_size=bs, shuffle=True)
        self.val_loader = DataLoader(val_ds, batch_size=bs)
        self.opt = optim.Adam(self.model.parameters(), lr=1e-3)

    def fit(self):
        for batch in self.loader:
            self.opt.zero_grad()
            loss = self.model(batch).mean()
            loss.backward()
            self.opt.step()
        for batch in self.val_loader:
            with torch.no_grad():
                self.model(batch)
"""


def test_a_trainer_of_the_users_own() -> None:
    cells = [TRAINER, "trainer = Trainer(net, ds)\ntrainer.fit()\n"]
    case, _ = ran(cells)
    settings: dict[str, Any] = {"num_workers": 1, "batch_size": 8, "amp": "fp16", "fused_optimizer": True}
    fix = case.fix(settings, [PRELUDE.replace("opt = ", "# opt = "), TRAINER])
    assert fix.complete, str(fix)
    (note,) = fix.notes
    assert "created by line 1 of this cell gets batch_size=8" in note
    _, recording = ran([cell.after for cell in fix.cells])
    trained, evaluated = sorted(recording.setup.loaders, key=lambda one: one.role == "evaluation")
    assert (trained.num_workers, trained.batch_size, evaluated.num_workers, evaluated.batch_size) == (1, 8, 0, 8)
    facts = recording.setup.optimizer_facts
    assert recording.setup.autocast == "float16" and facts is not None and facts[0].fused


def test_of_several_optimizers_those_of_the_class_that_stepped_are_fused() -> None:
    cell = "a = optim.SGD(net.parameters(), lr=0.1)\nb = optim.Adam(net.parameters())\n" + LOOP
    for name, call in (("SGD", "lr=0.1"), ("Adam", "Adam(net.parameters()")):
        setup = Setup(optimizers=(name,))
        fix = fixing.fix(["from torch import optim\n", cell], {"fused_optimizer": True}, setup, str)
        assert fix.cells[0].after == cell.replace(call, f"{call}, fused=True"), str(fix)


def test_a_fix_is_shown_escaped_and_line_by_line() -> None:
    setup = Setup(loaders=(LoaderSetup(key="x"),))
    fix = fixing.fix(
        ["loader = DataLoader(ds)  # <script>\r\nfor x in loader: x.backward()"], {"num_workers": 2}, setup, str
    )
    kinds = [kind for kind, _ in fix.lines()]
    assert kinds == ["head", "head", "place", "removed", "added", "same"]
    assert fix.diff.startswith("--- this cell\n+++ this cell, with num_workers=2\n@@")
    assert "\r" not in fix.diff and "\r\n" in fix.copied
    assert "color:" not in fix._repr_html_(), "the page's own ink, which is read on a dark page as well"
    assert "<script>" not in fix._repr_html_() and "&lt;script&gt;" in fix._repr_html_()
    nothing = fixing.fix(["for in in in"], {"num_workers": 2}, setup, lambda name: f"{name}!")
    assert not nothing.complete and nothing.paste == "num_workers!" and "Python" in nothing.notes[0]
    assert str(fixing.fix(["x = 1"], {}, setup, str)).startswith("Nothing to change")


def test_ipythons_own_lines_stay_as_they_are() -> None:
    cell = (
        "%%gpudoctor --steps 5\n%matplotlib inline\n!ls (\nfiles = !ls\nhelp?\nif True:\n    %cd .\n"
        "x = 7 \\\n    % 2\nloader = DataLoader(ds, 4)\nfor b in loader:\n    b.backward()\n"
    )
    fix = fixing.fix(["%%bash\nls", cell], {"num_workers": 2}, Setup(), str)
    assert fix.complete and fix.cells[0].after == cell.replace("(ds, 4)", "(ds, 4, num_workers=2)")


def test_a_function_is_fixed_in_its_own_source() -> None:
    namespace: dict[str, Any] = {}
    exec(PRELUDE, namespace)

    def train() -> None:
        DataLoader, opt, net = namespace["DataLoader"], namespace["opt"], namespace["net"]
        for x in DataLoader(namespace["ds"], batch_size=16):
            net(x).sum().backward()
            opt.step()

    case = gpu_doctor.case(train)
    case.run()
    fix = case.fix({"num_workers": 2})
    assert fix.complete and 'DataLoader(namespace["ds"], batch_size=16, num_workers=2)' in fix.copied


def test_an_unknown_knob_is_refused() -> None:
    with pytest.raises(Refused, match="Did you mean num_workers"):
        gpu_doctor.case(LOOP).fix({"num_wokers": 1})


def test_without_workers_goes_what_needs_them() -> None:
    cells = ["loader = DataLoader(ds, 16, num_workers=1, prefetch_factor=4, persistent_workers=True,\n"
             "                    multiprocessing_context='fork', timeout=30)\n" + LOOP]  # fmt: skip
    fix, after = fixed(cells, {"num_workers": 0})
    _, recording = ran(after)
    loader = recording.setup.training_loader
    assert fix.complete and loader is not None
    assert (loader.num_workers, loader.prefetch_factor, loader.persistent_workers) == (0, None, False)


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["from tests.unit.cell.test_fix_loop import made\nloader = made()\n" + LOOP], "was not found"),
        (["args = (ds, 16)\nloader = DataLoader(*args)\n" + LOOP], "in a way that cannot be read here"),
        (
            [
                "def pair():\n    return [DataLoader(ds, 16), DataLoader(ds, 16)]\nfor loader in pair():\n    pass\n"
                + LOOP
            ],
            "the training loader: 2 on line 2 of this cell",
        ),
    ],
)
def test_what_cannot_be_placed_is_said_with_the_lines_to_paste(cells: list[str], said: str) -> None:
    fix, after = fixed(cells, {"num_workers": 1})
    assert not fix.complete and after == cells
    assert said in " ".join(fix.notes) and fix.paste == "DataLoader(..., num_workers=1)"
    assert fix.paste in str(fix) and fix.paste in fix.copied


def test_all_settings_at_once_meet_in_one_cell() -> None:
    settings = {
        "num_workers": 1,
        "amp": "fp16",
        "channels_last": True,
        "fused_optimizer": True,
        "tf32": True,
        "cudnn_benchmark": True,
        "threads": 2,
    }
    fix, _, setup = fixed_loop(TRAIN % "# a cell", settings)
    assert fix.complete, str(fix)
    assert setup.model is not None and setup.model.channels_last == setup.model.convolutions == 1
    assert setup.inputs is not None and setup.inputs.channels_last
    assert setup.optimizer_facts is not None and setup.optimizer_facts[0].fused
    assert setup.training_loader is not None and setup.training_loader.num_workers == 1
    assert (setup.autocast, setup.torch_threads) == ("float16", 2)
    assert setup.flags["cudnn_benchmark"] is True and setup.flags["matmul_precision"] == "high"
    assert fix.diff.count("--- ") == 2


def test_the_cells_own_switches_are_changed_where_they_stand() -> None:
    own = "torch.set_num_threads(1)\ntorch.backends.cudnn.benchmark = False\n"
    own += "torch.set_float32_matmul_precision('highest')"
    fix, cell, setup = fixed_loop(TRAIN % own, {"threads": 2, "cudnn_benchmark": True, "tf32": True})
    assert fix.complete and setup.torch_threads == 2 and setup.flags["cudnn_benchmark"] is True
    assert 'set_float32_matmul_precision("high")' in cell and cell.count("cudnn.benchmark") == 1
    assert cell.startswith("torch.backends.cudnn.allow_tf32 = True\n")
