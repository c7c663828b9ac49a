"""Cells that do more than train: what is said of each before the click stands in `benchmarks/beforehand.py`.

Each is an earlier cell and the training cell; both are plain Python that runs on this machine, in a folder of its own.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final
from unittest import mock

STEP: Final = """
optimizer.zero_grad()
loss = model(x).pow(2).mean()
loss.backward()
optimizer.step()
"""
MODEL: Final = """
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.randn(64, 4), batch_size=4)
"""


@dataclass(frozen=True)
class Unusual:
    """One of them."""

    name: str
    before: str
    loop: str
    """Lines of the loop, behind its step."""
    head: str = ""
    """Lines above the loop."""
    ranks: int = 1

    @property
    def cell(self) -> str:
        """The training cell."""
        lines = [line for line in f"{STEP}{self.loop}".splitlines() if line]
        return f"{self.head}\nfor x in loader:\n" + "".join(f"    {line}\n" for line in lines)


CELLS: Final = (
    Unusual(
        "an open run of wandb (a stand-in of its shape)",
        "import wandb\nwandb.init(project='mine')",
        "wandb.log({'loss': loss.item()})",
    ),
    Unusual(
        "a SummaryWriter of an earlier cell",
        "from tensorboardX import SummaryWriter\nwriter = SummaryWriter('runs')",
        "writer.add_scalar('loss', loss.item())",
    ),
    Unusual(
        "a request in the loop, by a function of the user's",
        "import requests\ndef send(loss):\n    requests.post('http://localhost:1/', json={'loss': loss})",
        "if False: send(loss.item())",
    ),
    Unusual("a process in the cell", "import subprocess", "", head="subprocess.run(['true'])"),
    Unusual("a shell line", "", "", head="!cp a.txt b.txt"),
    Unusual(
        "an open database of an earlier cell",
        "import sqlite3\ndb = sqlite3.connect('runs.db')\ndb.execute('create table losses (value real)')",
        "db.execute('insert into losses values (?)', (loss.item(),))",
    ),
    Unusual("an open log file of an earlier cell", "log = open('log.txt', 'w')", "log.write(f'{loss.item()}\\n')"),
    Unusual(
        "a generator of an earlier cell",
        "def endless():\n    while True:\n        yield torch.randn(4, 4)\nbatches = endless()",
        "extra = next(batches)",
    ),
    Unusual(
        "a memory map of an earlier cell",
        "import numpy as np\nseen = np.memmap('seen.bin', dtype='float32', mode='w+', shape=(64,))",
        "seen[0] = loss.item()",
    ),
    Unusual("two ranks", "", "", ranks=2),
    Unusual(
        "a pool of processes of an earlier cell",
        "from concurrent.futures import ProcessPoolExecutor\npool = ProcessPoolExecutor(1)",
        "pool.submit(abs, loss.item())",
    ),
    Unusual(
        "a queue of an earlier cell",
        "import queue\nwaiting = queue.Queue()\nwaiting.put(1)",
        "waiting.put(loss.item())",
    ),
)


@contextmanager
def notebook_of(cell: Unusual) -> Iterator[dict[str, Any]]:
    """The names that the earlier cell leaves, in the working folder."""
    stand_in: Any = ModuleType("wandb")
    stand_in.run, stand_in.log = None, print
    stand_in.init = lambda **named: setattr(stand_in, "run", type("Run", (), {})())
    launched = {"WORLD_SIZE": str(cell.ranks), "RANK": "0"} if cell.ranks > 1 else {}
    space: dict[str, Any] = {"__name__": "__main__"}
    before = sys.modules.get("wandb")
    if "wandb" in cell.before:
        sys.modules["wandb"] = stand_in
    with mock.patch.dict(os.environ, launched):
        try:
            text, file = MODEL + cell.before, f"<{cell.name}>"
            linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
            exec(compile(text, file, "exec"), space)
            yield space
        finally:
            sys.modules.pop("wandb", None)
            if before is not None:
                sys.modules["wandb"] = before
            for value in list(space.values()):
                close = getattr(value, "shutdown", None) or getattr(value, "close", None)
                if callable(close) and not isinstance(value, (type, ModuleType)):
                    close()
