"""Cells that get their loader's arguments from many places are fixed there, and run with the settings."""

from __future__ import annotations

import pytest

from tests.support.fix_places_parts import ZIPPED
from tests.support.patched_cells import LOOP, WANTED, fixed, ran

PLACES: dict[str, list[str]] = {
    "class config": [
        "class Config:\n    batch_size = 16\n    num_workers = 0\n"
        "loader = DataLoader(ds, batch_size=Config.batch_size, num_workers=Config.num_workers)\n" + LOOP
    ],
    "dict config": [
        "cfg = {'bs': 16, 'workers': 0}\nloader = DataLoader(ds, batch_size=cfg['bs'], num_workers=cfg['workers'])\n"
        + LOOP
    ],
    "argparse": [
        "import argparse\nargs = argparse.Namespace(bs=16, workers=0)\n"
        "loader = DataLoader(ds, batch_size=args.bs, num_workers=args.workers)\n" + LOOP
    ],
    "class attribute": ["class T:\n    loader = DataLoader(ds, 16)\n" + LOOP.replace("loader", "T.loader")],
    "class attribute, instance": [
        "class T:\n    loader = DataLoader(ds, 16)\n    def go(self):\n"
        + "".join("        " + line + "\n" for line in LOOP.replace("loader", "self.loader").splitlines())
        + "T().go()\n"
    ],
    "tutorial comprehension": [
        "sets = {'train': ds, 'val': val_ds}\n"
        "loaders = {x: DataLoader(sets[x], batch_size=16, shuffle=True, num_workers=0)\n"
        "              for x in ['train', 'val']}\n" + LOOP.replace("loader:", "loaders['train']:")
    ],
    "list comprehension": [
        "loaders = [DataLoader(one, batch_size=16) for one in (ds, val_ds)]\n" + LOOP.replace("loader:", "loaders[0]:")
    ],
    "tuple from helper": [
        "def get():\n    train = DataLoader(ds, batch_size=16, shuffle=True)\n"
        "    test = DataLoader(val_ds, batch_size=16)\n    return train, test\n",
        "loader, test_loader = get()\n" + LOOP,
    ],
    "helper in dict": [
        "def get():\n    return {'a': DataLoader(ds, batch_size=16), 'b': DataLoader(val_ds, batch_size=16)}\n",
        "ls = get()\n" + LOOP.replace("loader:", "ls['a']:"),
    ],
    "staticmethod": [
        "class D:\n    @staticmethod\n    def make(size):\n"
        "        return DataLoader(ds, batch_size=size)\nloader = D.make(16)\n" + LOOP
    ],
    "classmethod": [
        "class D:\n    @classmethod\n    def make(cls, size=16):\n"
        "        return DataLoader(ds, batch_size=size)\nloader = D.make()\n" + LOOP
    ],
    "property": [
        "class D:\n    @property\n    def loader(self):\n        return DataLoader(ds, batch_size=16)\nd = D()\n"
        + LOOP.replace("loader:", "d.loader:")
    ],
    "dataclass field": [
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    bs: int = 16\n"
        "    workers: int = 0\nc = C()\n"
        "loader = DataLoader(ds, batch_size=c.bs, num_workers=c.workers)\n" + LOOP
    ],
    "tqdm": [
        "def tqdm(x, **k): return x\nloader = DataLoader(ds, 16)\n"
        + LOOP.replace("in loader:", "in tqdm(loader, desc='x'):")
    ],
    "enumerate": ["loader = DataLoader(ds, 16)\n" + LOOP.replace("for x in loader:", "for i, x in enumerate(loader):")],
    "iter/next": [
        "loader = DataLoader(ds, 16)\nit = iter(loader)\nfor i in range(3):\n    x = next(it)\n"
        + "".join(LOOP.splitlines(True)[1:])
    ],
    "while": [
        "loader = DataLoader(ds, 16)\ndone = False\nwhile not done:\n    for x in loader:\n"
        + "".join("    " + line for line in LOOP.splitlines(True)[1:])
        + "    done = True\n"
    ],
    "lambda factory": ["make = lambda rows: DataLoader(rows, batch_size=16)\nloader = make(ds)\n" + LOOP],
    "conditional workers": ["loader = DataLoader(ds, batch_size=16, num_workers=0 if True else 4)\n" + LOOP],
    "type comment multi-line str": ["loader = DataLoader(  # the 'loader'\n    ds, batch_size=16, # x\n    )\n" + LOOP],
    "semicolon": ["loader = DataLoader(ds, batch_size=16); n = len(loader)\n" + LOOP],
    "backslash": ["loader = \\\n    DataLoader(ds,\\\n    batch_size=16)\n" + LOOP],
    "nested call": ["loader = list([DataLoader(ds, batch_size=16)])[0]\n" + LOOP],
    "two batchsize const earlier": [
        "BATCH_SIZE = 16\nNUM_WORKERS = 0\n",
        "loader = DataLoader(ds, batch_size=BATCH_SIZE, num_workers=NUM_WORKERS)\n"
        "val = DataLoader(val_ds, batch_size=BATCH_SIZE, num_workers=NUM_WORKERS)\n",
        LOOP,
    ],
}


@pytest.mark.parametrize("place", PLACES)
def test_the_fixed_cells_run_with_the_settings(place: str) -> None:
    fix, cells = fixed(PLACES[place], WANTED)
    assert fix.complete and not fix.paste, str(fix)
    trained = ran(cells)[1].setup.training_loader
    assert trained is not None
    assert (trained.num_workers, trained.batch_size, trained.dataset) == (1, 8, "Rows"), str(fix)
    for before, after in zip(PLACES[place], cells, strict=True):
        assert len(before.splitlines()) <= len(after.splitlines())
        kept = [line for line in before.splitlines() if line in after.splitlines()]
        assert len(before.splitlines()) - len(kept) <= 2


def test_loaders_drawn_from_together_are_changed_together() -> None:
    fix, cells = fixed([ZIPPED], {"num_workers": 1})
    assert fix.complete, str(fix)
    assert "DataLoader(ds, 16, num_workers=1), DataLoader(val_ds, batch_size=4, num_workers=1)\n" in cells[0]
    assert "c = DataLoader(val_ds, 2)\n" in cells[0]
    assert [one.num_workers for one in ran(cells)[1].setup.loaders] == [1, 1]
