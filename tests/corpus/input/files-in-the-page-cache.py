# /// truth
# class = "input"
# causes = ["loader-without-workers", "slow-getitem"]
# never = ["slow-storage"]
# most_workers = 2
# settings = { num_workers = 2 }
# why = "Files that lie in the page cache are decoded by the training itself: computing, not waiting for a disk."
# ///

# %%
LENGTH = 150
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
folder = Path(tempfile.gettempdir()) / "corpus-slices"
folder.mkdir(exist_ok=True)
for i in range(96):
    if not (folder / f"{i}.npy").exists():
        np.save(folder / f"{i}.npy", np.random.default_rng(i).normal(size=(256, 1024)).astype(np.float32))


class Slices(Dataset):
    def __init__(self, cold):
        self.cold = cold

    def __len__(self):
        return 8 * LENGTH

    def __getitem__(self, i):
        path = folder / f"{i % 96}.npy"
        if self.cold:  # a data set larger than the memory: never in the page cache
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)
        return torch.from_numpy(np.load(path)).mean(0), i % 3


model = nn.Sequential(nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, 3))
optimizer = torch.optim.Adam(model.parameters())

# %% diagnosed
loader = DataLoader(Slices(cold=False), batch_size=8, shuffle=True)
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
