# /// truth
# class = "input"
# causes = ["loader-without-workers", "slow-getitem"]
# timed = "few"
# why = "The closure of L-BFGS runs through the loader many times a step and decompresses the same samples each time."
# ///

# %%
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
rng = np.random.default_rng(0)
files = [zlib.compress(rng.integers(0, 8, 60_000, dtype=np.uint8).tobytes()) for _ in range(128)]


def decoded(i):
    return torch.from_numpy(np.frombuffer(zlib.decompress(files[i]), dtype=np.uint8)[:256] / np.float32(8))


class Compressed(Dataset):
    def __len__(self):
        return 128

    def __getitem__(self, i):
        return decoded(i)


model = nn.Sequential(nn.Linear(256, 200), nn.Tanh(), nn.Linear(200, 256))
opt = torch.optim.LBFGS(model.parameters(), max_iter=10)

# %% diagnosed
loader = DataLoader(Compressed(), batch_size=32)


def closure():
    opt.zero_grad()
    total = 0.0
    for x in loader:
        loss = (model(x) - x).pow(2).mean()
        loss.backward()
        total += loss.item()
    return total


for step in range(4):
    opt.step(closure)
