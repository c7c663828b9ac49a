"""What the tests on a GPU try there is right: the same cells on the CPU, put back in the same way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import gpu_doctor
from tests.support.cells import notebook
from tests.support.cells.device import IMAGES, NAMES, kind, on
from tests.support.everything import Everything
from tests.support.looking_on import looking
from tests.support.restoring import tried


@pytest.mark.parametrize("name", NAMES)
def test_the_cells_are_put_back(name: str, tmp_path: Path) -> None:
    one = kind(name, "cpu")
    space = notebook(one, tmp_path)
    before, after, outcome = tried(one, "raised", space)
    assert outcome == "failed"
    assert before.differences(after) == [] and before.digest == after.digest
    exec(compile(one.code, "<cell>", "exec"), space)
    assert Everything(space).digest != before.digest


@pytest.mark.parametrize(
    ("settings", "turned"),
    [
        ({"amp": "bf16"}, lambda seen: set(seen.autocast) == set(seen.results) == {torch.bfloat16}),
        ({"channels_last": True}, lambda seen: all(seen.channels_last)),
        ({"fused_optimizer": True}, lambda seen: all(seen.fused)),
        ({"threads": 1}, lambda seen: set(seen.autocast) == {None} and not any(seen.fused + seen.channels_last)),
    ],
    ids=["amp", "channels_last", "fused_optimizer", "nothing"],
)
def test_what_is_turned_is_seen(settings: dict[str, Any], turned: Any, tmp_path: Path) -> None:
    one = on(IMAGES, "cpu")
    space = notebook(one, tmp_path)
    case = gpu_doctor.case(one.code, space)
    case.run(steps=4)
    before = Everything(space)
    with looking(case, space) as seen:
        effect = case.trial(settings, steps=4, seconds=10.0, pairs=1)
    assert effect.outcome in ("completed", "budget-reached")
    assert len(seen.fused) == 4 and turned(seen)
    assert Everything(space).digest == before.digest
