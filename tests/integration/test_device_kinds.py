"""What the tests on a GPU try there is right: the same cells on the CPU, put back in the same way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cells import notebook
from tests.support.cells.device import NAMES, kind
from tests.support.everything import Everything
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
