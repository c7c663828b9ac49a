"""Switches that the cells set themselves, in any of their forms, are changed where they stand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gpu_doctor.recording import Setup
from gpu_doctor.trials import fix as fixing

LOOP = "for x in loader:\n    model(x).sum().backward()\n    opt.step()\n"


def after(cell: str, settings: dict[str, Any], namespace: dict[str, Any] | None = None) -> str:
    fix = fixing.fix([cell + LOOP], settings, Setup(), str, namespace)
    assert fix.complete, str(fix)
    compile(fix.cells[0].after, "<cell>", "exec")
    return fix.cells[0].after.removesuffix(LOOP)


@pytest.mark.parametrize(
    ("written", "becomes"),
    [
        ("import torch.backends.cudnn as cudnn\ncudnn.benchmark = False\n", "cudnn.benchmark = True\n"),
        ("from torch.backends import cudnn\ncudnn.benchmark = False\n", "cudnn.benchmark = True\n"),
        ("import torch as T\nT.backends.cudnn.benchmark = False\n", "T.backends.cudnn.benchmark = True\n"),
        ("torch.backends.cudnn.benchmark = False\n", "torch.backends.cudnn.benchmark = True\n"),
    ],
)
def test_a_switch_by_any_name(written: str, becomes: str) -> None:
    cell = after(written, {"cudnn_benchmark": True})
    assert cell.count("benchmark") == 1 and cell.endswith(becomes)


def test_another_objects_attribute_of_that_name_is_none() -> None:
    cell = after("import torch, mine\nmine.backends.cudnn.benchmark = False\n", {"cudnn_benchmark": True})
    assert "mine.backends.cudnn.benchmark = False" in cell and "torch.backends.cudnn.benchmark = True" in cell


@pytest.mark.parametrize("value", [True, False])
def test_the_older_switch_of_matmul_is_the_same_one(value: bool) -> None:
    own = "import torch\ntorch.backends.cuda.matmul.allow_tf32 = {0}\ntorch.backends.cudnn.allow_tf32 = {0}\n"
    assert after(own.format(not value), {"tf32": value}) == own.format(value)


def test_a_function_imported_by_its_name() -> None:
    cell = after("from torch import set_num_threads\nset_num_threads(1)\n", {"threads": 3})
    assert cell.endswith("set_num_threads(3)\n") and cell.count("set_num_threads(") == 1


@pytest.mark.parametrize("namespace", [{}, {"torch": torch, "autocast": torch.cuda.amp.autocast}])
@pytest.mark.parametrize(
    ("written", "becomes"),
    [
        ("torch.autocast('cuda', torch.float16, use_amp)", "torch.autocast('cuda', torch.float16, False)"),
        ("torch.autocast('cuda', torch.float16)", "torch.autocast('cuda', torch.float16, enabled=False)"),
        ("torch.autocast('cuda', enabled=use_amp)", "torch.autocast('cuda', enabled=False)"),
        ("torch.autocast('cuda', **options)", """torch.autocast('cuda', **{**options, "enabled": False})"""),
        ("torch.cuda.amp.autocast(use_amp)", "torch.cuda.amp.autocast(False)"),
        ("torch.cuda.amp.autocast()", "torch.cuda.amp.autocast(enabled=False)"),
        ("autocast(use_amp)", "autocast(False)"),
        (
            "torch.cuda.amp.GradScaler(1.0, 2.0, 0.5, 10, use_amp)",
            "torch.cuda.amp.GradScaler(1.0, 2.0, 0.5, 10, False)",
        ),
        ("torch.cuda.amp.GradScaler(1.0)", "torch.cuda.amp.GradScaler(1.0, enabled=False)"),
        (
            "torch.amp.GradScaler('cuda', 1.0, 2.0, 0.5, 10, use_amp)",
            "torch.amp.GradScaler('cuda', 1.0, 2.0, 0.5, 10, False)",
        ),
    ],
)
def test_mixed_precision_is_switched_off_by_place_or_by_name(
    written: str, becomes: str, namespace: dict[str, Any]
) -> None:
    imports = "import torch\nfrom torch.cuda.amp import autocast\n"
    assert after(f"{imports}used = {written}\n", {"amp": "off"}, namespace) == f"{imports}used = {becomes}\n"


def test_arguments_that_may_hold_the_switch_are_left_to_the_hand() -> None:
    fix = fixing.fix(["import torch\nused = torch.autocast(*given)\n" + LOOP], {"amp": "off"}, Setup(), str)
    assert not fix.complete and "enabled" in fix.notes[0]


def test_a_line_that_imports_torch_and_goes_on_stays_before_it() -> None:
    assert after("import torch; seed = 1\n", {"threads": 3}) == "import torch; seed = 1\ntorch.set_num_threads(3)\n"


@pytest.mark.parametrize("cell", ["import torch", "import torch\n"])
def test_a_cell_of_imports_alone_gets_the_line_behind_them(cell: str) -> None:
    fix = fixing.fix([cell], {"threads": 3}, Setup(), str)
    assert fix.complete and fix.cells[0].after == "import torch\ntorch.set_num_threads(3)\n"
