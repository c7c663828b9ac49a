# /// truth
# class = "host"
# causes = ["slow-generator"]
# why = "A generator downloads each batch between two steps. Written before any rule was tried on it."
# ///

# %%
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(0)
LENGTH = 100


def download(i):
    time.sleep(0.03)
    g = np.random.default_rng(i)
    return torch.from_numpy(g.normal(size=(64, 32)).astype("float32")), torch.from_numpy(g.integers(0, 4, 64))


def batches(n):
    for i in range(n):
        yield download(i)


class Remote(Dataset):
    def __len__(self):
        return LENGTH

    def __getitem__(self, i):
        return download(i)


net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
opt = torch.optim.SGD(net.parameters(), 0.05)

# %% diagnosed
for x, y in batches(LENGTH):
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
