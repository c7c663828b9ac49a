"""Cells that were fixed as code are run for real; what has no place in them is said, with the lines to paste."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import gpu_doctor
from tests.support.patched_cells import LOOP, PRELUDE, fixed, ran
from tests.support.shells import one_shell as one_shell


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
            "Several calls may have made the training loader: 2 on line 2 of this cell",
        ),
    ],
)
def test_what_cannot_be_placed_is_said_with_the_lines_to_paste(cells: list[str], said: str) -> None:
    fix, after = fixed(cells, {"num_workers": 1})
    assert not fix.complete and after == cells
    assert said in " ".join(fix.notes) and fix.paste == "DataLoader(..., num_workers=1)"
    assert fix.paste in str(fix) and fix.paste in fix.copied


@pytest.fixture
def shell(one_shell: InteractiveShell) -> Iterator[InteractiveShell]:
    one_shell.reset(new_session=True)
    one_shell.run_line_magic("load_ext", "gpu_doctor")
    yield one_shell
    one_shell.run_line_magic("unload_ext", "gpu_doctor")
    one_shell.reset(new_session=True)


def test_in_a_notebook_the_earlier_cells_are_those_that_ipython_remembers(shell: InteractiveShell) -> None:
    with capture_output():
        shell.run_cell("here = %pwd\n" + PRELUDE, store_history=True)
        shell.run_cell("%matplotlib?\nloader = DataLoader(ds, batch_size=16)", store_history=True)
        shell.run_cell("%%gpudoctor --no-view\n# typo\n" + LOOP, store_history=True)
        shell.run_cell("%%gpudoctor --no-view\n" + LOOP, store_history=True)
    case = gpu_doctor.last_case()
    assert case is not None
    fix = case.fix({"num_workers": 2, "threads": 1})
    assert fix.complete, str(fix)
    assert [cell.label for cell in fix.cells] == ["cell [2]", "this cell"]
    assert fix.cells[0].after == "%matplotlib?\nloader = DataLoader(ds, batch_size=16, num_workers=2)"
    assert fix.cells[1].after.startswith("%%gpudoctor --no-view\ntorch.set_num_threads(1)\nfor x in loader")
