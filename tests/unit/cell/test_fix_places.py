"""More places from which a loader gets its arguments, and every setting back off; the fixed cells are run for real."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from gpu_doctor.trials import fix as fixing
from gpu_doctor.trials import knobs
from tests.support.patched_cells import LOOP, PRELUDE, fixed, ran

ZIPPED = "a, b = DataLoader(ds, 16), DataLoader(val_ds, batch_size=4)\nc = DataLoader(val_ds, 2)\n" + LOOP.replace(
    "for x in loader", "for x, y in zip(a, b)"
)


def test_every_choice_of_every_knob_is_written_or_said() -> None:
    cell = "loader = DataLoader(ds, 16)\n" + LOOP
    case, recording = ran([cell])
    for name, knob in knobs.KNOBS.items():
        for choice in knob.choices(recording.setup):
            fix = case.fix({name: choice.value}, [PRELUDE])
            assert fix.complete or (fix.notes and fix.paste), (name, choice)
            assert all(note[0].isalnum() and note.endswith(".") and "\n" not in note for note in fix.notes), fix.notes


def test_batches_of_several_training_loaders_keep_their_ratio() -> None:
    case, recording = ran([ZIPPED])
    setup = recording.setup
    train = replace(setup, loaders=tuple(replace(one, role="training") for one in setup.loaders))
    fix = fixing.fix([ZIPPED], {"batch_size": 8}, train, str, case.namespace)
    assert fix.complete and "DataLoader(ds, 8), DataLoader(val_ds, batch_size=2)\n" in fix.cells[0].after
    fix = fixing.fix([ZIPPED], {"batch_size": 6}, train, str, case.namespace)
    assert "DataLoader(ds, 6), DataLoader(val_ds, batch_size=4)\n" in fix.cells[0].after
    (note,) = fix.notes
    assert "not changed. Its batch size of 4 keeps" in note and note.endswith("a multiple of 4.")


def test_loaders_that_nothing_distinguishes_and_that_all_train() -> None:
    cell = "a = DataLoader(ds, 16)\nb = DataLoader(ds, 16)\n" + LOOP.replace("for x in loader", "for x, y in zip(a, b)")
    fix, cells = fixed([cell], {"num_workers": 1})
    assert fix.complete and cells[0].count("num_workers=1") == 2, str(fix)


def test_loaders_drawn_from_together_are_changed_together() -> None:
    fix, cells = fixed([ZIPPED], {"num_workers": 1})
    assert fix.complete, str(fix)
    assert "DataLoader(ds, 16, num_workers=1), DataLoader(val_ds, batch_size=4, num_workers=1)\n" in cells[0]
    assert "c = DataLoader(val_ds, 2)\n" in cells[0]
    assert [one.num_workers for one in ran(cells)[1].setup.loaders] == [1, 1]


OWN = """torch.backends.cudnn.benchmark = True
torch.set_float32_matmul_precision("high")
opt = optim.Adam(net.parameters(), lr=1e-3, fused=True)
loader = DataLoader(ds, 16, num_workers=1, persistent_workers=True, prefetch_factor=4, pin_memory=True)
for x in loader:
    opt.zero_grad()
    x = x.to("cpu", non_blocking=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = net(x).sum()
    loss.backward()
    opt.step()
"""


def test_every_setting_can_be_written_off_again() -> None:
    precision, benchmark = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    try:
        off: dict[str, Any] = {
            "persistent_workers": False,
            "pin_memory": False,
            "prefetch_factor": 2,
            "amp": "off",
            "fused_optimizer": False,
            "tf32": False,
            "cudnn_benchmark": False,
        }
        fix, cells = fixed([OWN], off)
        assert fix.complete, str(fix)
        setup = ran(cells)[1].setup
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.benchmark = benchmark
    loader, facts = setup.training_loader, setup.optimizer_facts
    assert loader is not None and facts
    assert (loader.persistent_workers, loader.pin_memory, loader.prefetch_factor) == (False, False, 2)
    assert (setup.autocast, facts[0].fused, setup.flags["cudnn_benchmark"]) == ("", False, False)
    assert setup.flags["matmul_precision"] == "highest"
