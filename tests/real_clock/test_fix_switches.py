"""Switches that the cells set themselves are changed where they stand, all settings at once among them."""

from __future__ import annotations

from tests.support.fix_loop_parts import TRAIN, images


def test_all_settings_at_once_meet_in_one_cell() -> None:
    settings = {
        "num_workers": 1,
        "amp": "fp16",
        "channels_last": True,
        "non_blocking": True,
        "fused_optimizer": True,
        "tf32": True,
        "cudnn_benchmark": True,
        "threads": 2,
    }
    fix, cell, setup = images(settings)
    assert fix.complete, str(fix)
    assert setup.model is not None and setup.model.channels_last == setup.model.convolutions == 1
    assert setup.inputs is not None and setup.inputs.channels_last
    assert setup.optimizer_facts is not None and setup.optimizer_facts[0].fused
    assert setup.training_loader is not None and setup.training_loader.num_workers == 1
    assert (setup.autocast, setup.torch_threads) == ("float16", 2)
    assert setup.flags["cudnn_benchmark"] is True and setup.flags["matmul_precision"] == "high"
    assert cell.count("non_blocking=True") == 2
    assert fix.diff.count("--- ") == 2


def test_the_cells_own_switches_are_changed_where_they_stand() -> None:
    own = "torch.set_num_threads(1)\ntorch.backends.cudnn.benchmark = False\n"
    own += "torch.set_float32_matmul_precision('highest')"
    fix, cell, setup = images({"threads": 2, "cudnn_benchmark": True, "tf32": True}, TRAIN % own)
    assert fix.complete and setup.torch_threads == 2 and setup.flags["cudnn_benchmark"] is True
    assert 'set_float32_matmul_precision("high")' in cell and cell.count("cudnn.benchmark") == 1
    assert cell.startswith("torch.backends.cudnn.allow_tf32 = True\n")
