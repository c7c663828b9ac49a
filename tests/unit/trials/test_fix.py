"""Cures as code: the fixed cells are run for real, and the recording of that run has the settings."""

from __future__ import annotations

import pytest

from gpu_doctor.cell import Fix
from tests.support.patched_cells import LOOP, WANTED, fixed, ran

WAYS: dict[str, list[str]] = {
    "plain": ["loader = DataLoader(ds, batch_size=16)\n" + LOOP],
    "closing bracket hangs": ["loader = DataLoader(ds, batch_size=16\n                    )\n" + LOOP],
    "bracketed arguments": ["loader = DataLoader((ds), batch_size=(16), num_workers=(0))\n" + LOOP],
    "renamed import": ["from torch.utils.data import DataLoader as DL\nloader = DL(ds, batch_size=16)\n" + LOOP],
    "another name for it": ["Make = DataLoader\nloader = Make(ds, 16)\n" + LOOP],
    "variable": ["BATCH, workers = 16, 0\nloader = DataLoader(ds, batch_size=BATCH, num_workers=workers)\n" + LOOP],
    "expression": ["n = '16'\nloader = DataLoader(ds, batch_size=int(f'{n}'), num_workers=0 * 3)\n" + LOOP],
    "earlier cell, defined twice": [
        "loader = DataLoader(ds, batch_size=4)",
        "loader = DataLoader(ds, batch_size=16)",
        LOOP,
    ],
    "options inline": ["loader = DataLoader(ds, **{'batch_size': 16})\n" + LOOP],
    "options that change": [
        "options = {'shuffle': True}\noptions['batch_size'] = 16\nloader = DataLoader(ds, **options)\n" + LOOP
    ],
    "options shared": [
        "options = dict(batch_size=16, num_workers=0)\n"
        "loader, val = DataLoader(ds, **options), DataLoader(val_ds, **options)\n" + LOOP
    ],
    "options of a function": [
        "def options():\n    return dict(batch_size=16)\nloader = DataLoader(ds, **options(), num_workers=0)\n" + LOOP
    ],
    "helper": [
        "def make(rows, size, workers=0):\n    return DataLoader(rows, batch_size=size, num_workers=workers)",
        "loader = make(ds, 16)\nval = make(val_ds, 32)\n" + LOOP,
    ],
    "helper with **kwargs": [
        "def make(rows, **how):\n    return DataLoader(rows, drop_last=True, **how)\n"
        "loader, val = make(ds, batch_size=16), make(val_ds, batch_size=16)\n" + LOOP
    ],
    "helper of a helper": [
        "def inner(rows, b, w):\n    return DataLoader(rows, b, num_workers=w)\n"
        "def outer(b):\n    return inner(ds, b, w=0)\nloader = outer(16)\n" + LOOP
    ],
    "method": [
        "class Data:\n    def __init__(self, size):\n        self.size = size\n    def loader(self):\n"
        "        return DataLoader(ds, batch_size=self.size)\n    def val(self):\n"
        "        return DataLoader(val_ds, batch_size=32)\nloader = Data(16).loader()\n" + LOOP
    ],
    "attribute": [
        "class Box: pass\nbox = Box()\nbox.loader = DataLoader(ds, batch_size=16)\nbox.val = DataLoader(val_ds, 16)\n"
        + LOOP.replace("loader", "box.loader")
    ],
    "subclass": ["class Mine(DataLoader):\n    pass\nloader = Mine(ds, 16)\n" + LOOP],
    "batch sampler, a loader of that name before": [
        "loader = DataLoader(ds, 16, shuffle=True)\n"
        "loader = DataLoader(ds, batch_sampler=BatchSampler(RandomSampler(ds), 16, False))\n" + LOOP
    ],
    "batch sampler by name": [
        "batches = BatchSampler(RandomSampler(ds), batch_size=16, drop_last=True)\n"
        "loader = DataLoader(ds, batch_sampler=batches)\n" + LOOP
    ],
    "two loaders, by dataset": ["loader = DataLoader(ds, 16)\nval = DataLoader(val_ds, 16)\n" + LOOP],
    "two loaders, by the loop": ["val = DataLoader(ds, 16)\nloader = DataLoader(ds, 16)\n" + LOOP],
    "two loaders in a dict": [
        "loaders = {'train': DataLoader(ds, 16, shuffle=True), 'val': DataLoader(ds, 16)}\n"
        + LOOP.replace("loader", "loaders['train']")
    ],
    "in the head of the loop": [LOOP.replace("loader", "DataLoader(ds, batch_size=16)")],
    "typed": ["loader = DataLoader[int](ds, 16)\n" + LOOP],
    "options spread into options": [
        "more = {'num_workers': 0}\nloader = DataLoader(ds, **{'batch_size': 16, **more})\n" + LOOP
    ],
    "tabs": ["def make():\n\treturn DataLoader(\n\t\tds,\n\t\tbatch_size=16,\n\t)\nloader = make()\n" + LOOP],
    "a helper's own change": [
        "def make(size):\n    size = size * 2\n    return DataLoader(ds, batch_size=size)\nloader = make(8)\n" + LOOP
    ],
    "if and else": ["if len(ds) > 3:\n    loader = DataLoader(ds, 16)\nelse:\n    loader = DataLoader(ds, 4)\n" + LOOP],
    "prefetch and workers to none": [
        "loader = DataLoader(ds, 16, prefetch_factor=None, num_workers=0, timeout=0)\n" + LOOP
    ],
    "class config": [
        "class Config:\n    batch_size = 16\n    num_workers = 0\n"
        "loader = DataLoader(ds, batch_size=Config.batch_size, num_workers=Config.num_workers)\n" + LOOP
    ],
    "tutorial comprehension": [
        "sets = {'train': ds, 'val': val_ds}\n"
        "loaders = {x: DataLoader(sets[x], batch_size=16, shuffle=True, num_workers=0)\n"
        "              for x in ['train', 'val']}\n" + LOOP.replace("loader:", "loaders['train']:")
    ],
    "classmethod": [
        "class D:\n    @classmethod\n    def make(cls, size=16):\n"
        "        return DataLoader(ds, batch_size=size)\nloader = D.make()\n" + LOOP
    ],
    "dataclass field": [
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    bs: int = 16\n"
        "    workers: int = 0\nc = C()\n"
        "loader = DataLoader(ds, batch_size=c.bs, num_workers=c.workers)\n" + LOOP
    ],
    "iter/next": [
        "loader = DataLoader(ds, 16)\nit = iter(loader)\nfor i in range(3):\n    x = next(it)\n"
        + "".join(LOOP.splitlines(True)[1:])
    ],
    "lambda factory": ["make = lambda rows: DataLoader(rows, batch_size=16)\nloader = make(ds)\n" + LOOP],
    "backslash": ["loader = \\\n    DataLoader(ds,\\\n    batch_size=16)\n" + LOOP],
}


BY_HAND: dict[str, list[str]] = {
    "partial": ["make = partial(DataLoader, batch_size=16, num_workers=0)\nloader = make(ds)\n" + LOOP],
    "functools.partial called at once": ["loader = functools.partial(DataLoader, batch_size=16)(ds)\n" + LOOP],
    "subclass with its own __init__": [
        "class Mine(DataLoader):\n    def __init__(self, rows, size):\n"
        "        super().__init__(rows, batch_size=size)\n        self.own = 1\nloader = Mine(ds, 16)\n" + LOOP
    ],
}
"""Calls behind another call, where a keyword that is added could be passed twice or not be taken."""


@pytest.mark.parametrize("way", WAYS)
def test_the_fixed_cells_run_with_the_settings_and_nothing_else_is_changed(way: str) -> None:
    fix, cells = fixed(WAYS[way], WANTED)
    assert fix.complete and not fix.paste, str(fix)
    for before, after in zip(WAYS[way], cells, strict=True):
        gone = [line for line in before.splitlines() if line not in after.splitlines()]
        assert len(gone) <= len(WANTED)  # a line of each setting changes at most; more may be new
        assert before.count("\r\n") == 0 or after.count("\n") == after.count("\r\n")
        comments = [part.partition("#")[2] for part in before.splitlines() if "#" in part]
        assert all(comment in after for comment in comments)
    _, recording = ran(cells)
    trained = recording.setup.training_loader
    assert trained is not None
    assert (trained.num_workers, trained.batch_size, trained.dataset) == (1, 8, "Rows"), str(fix)
    if "val" in "".join(cells):
        assert not any(one.batch_size == 8 for one in recording.setup.loaders if one.dataset == "Others")


@pytest.mark.parametrize("way", BY_HAND)
def test_what_cannot_be_written_safely_is_left_to_paste(way: str) -> None:
    fix, cells = fixed(BY_HAND[way], WANTED)
    assert not fix.complete and fix.notes and cells == BY_HAND[way]
    assert fix.paste.splitlines() == ["DataLoader(..., num_workers=1)", "DataLoader(..., batch_size=8)"]


def test_a_cell_that_ran_after_the_case_is_not_read() -> None:
    """The loop was run with the loader of the cell before it; what a later cell makes under its name is another."""
    earlier, later = (
        "loader = DataLoader(ds, batch_size=16)\n",
        "loader = DataLoader(ds, batch_size=16, shuffle=True)\n",
    )
    case, _ = ran([earlier, LOOP], entered=True)
    exec(later, case.namespace)
    case.namespace["In"].append(later)
    fix = case.fix({"num_workers": 1})
    assert [one.after for one in fix.cells] == ["loader = DataLoader(ds, batch_size=16, num_workers=1)\n"]
    case.run()
    assert [one.before for one in case.fix({"num_workers": 1}).cells] == [later]


def test_nothing_to_write_has_its_reason() -> None:
    assert "no setting" in str(Fix()) and "already" in str(Fix({"num_workers": 1}))
