"""Patients whose bare cell does not run to its end on a machine that is short of something, or of a way to its workers.

The truth is the ending itself: the bare sick cell raises, the bare cured one does not, in the same room.
"""

from __future__ import annotations

from tests.support.clinic.cell import Cell, Patient
from tests.support.clinic.room import Room

MIB = 1 << 20

PHOTOS = """
import torch
from torch.utils.data import DataLoader, Dataset

LENGTH = 400

class Photos(Dataset):
    def __len__(self):
        return LENGTH

    def __getitem__(self, i):
        return torch.rand(3, 128, 128), i % 10

model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 128 * 128, 10))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
lossf = torch.nn.CrossEntropyLoss()
"""
TRAIN = """
for x, y in loader:
    opt.zero_grad()
    loss = lossf(model(x), y)
    loss.backward()
    opt.step()
"""

KEPT = """
import zlib

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

packed = zlib.compress(np.random.default_rng(0).integers(0, 64, 1 << 22, dtype=np.uint8).tobytes(), 1)

model = torch.nn.Sequential(torch.nn.Linear(1024, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
lossf = torch.nn.CrossEntropyLoss()
"""
SCANS = """
class Scans(Dataset):
    def __init__(self):
        self.kept = {{}}

    def __len__(self):
        return 800

    def __getitem__(self, i):
        scan = np.frombuffer(zlib.decompress(packed), np.uint8).astype(np.float32)
        {keep}return torch.from_numpy(scan[:1024].copy()), i % 2

loader = DataLoader(Scans(), batch_size=4, num_workers=2)
"""

SPAWNED = """
import time

import torch
import torch.multiprocessing
from torch.utils.data import DataLoader, Dataset

torch.multiprocessing.set_start_method("spawn", force=True)

model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
lossf = torch.nn.CrossEntropyLoss()
"""
ROWS = """
class Rows(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return torch.rand(32), i % 2
"""
IN_A_MODULE = '''
import pathlib, sys, tempfile

home = tempfile.mkdtemp()
pathlib.Path(home, "rows_of_a_notebook.py").write_text("""
import time

import torch
from torch.utils.data import Dataset
{rows}""")
sys.path.insert(0, home)
from rows_of_a_notebook import Rows
'''

CELLS: tuple[Patient, ...] = (
    Cell(
        "batches-that-overflow-shared-memory",
        "unknown",
        ("small-shared-memory",),
        before=PHOTOS,
        sick="loader = DataLoader(Photos(), batch_size=32, num_workers=2)" + TRAIN,
        cured="loader = DataLoader(Photos(), batch_size=8, num_workers=2)" + TRAIN,
        room=Room(shm_bytes=12 * MIB),
        dies=True,
    ),
    Cell(
        "workers-that-keep-what-they-read",
        "input",
        ("host-memory-pressure",),
        before=KEPT,
        sick=SCANS.format(keep="self.kept[i] = scan[: 1 << 19].copy()\n        ") + TRAIN,
        cured=SCANS.format(keep="") + TRAIN,
        room=Room(memory_bytes=600 * MIB),
        dies=True,
    ),
    Cell(
        "notebook-rows-for-spawned-workers",
        "unknown",
        ("workers-cannot-start",),
        before=SPAWNED,
        sick=ROWS + "\nloader = DataLoader(Rows(), batch_size=4, num_workers=2)" + TRAIN,
        cured=IN_A_MODULE.format(rows=ROWS) + "\nloader = DataLoader(Rows(), batch_size=4, num_workers=2)" + TRAIN,
        room=Room(notebook=True),
        dies=True,
    ),
)
