# /// truth
# class = "input"
# causes = ["workers-wait-for-each-other"]
# earlier = { num_workers = 1 }
# holdout = true
# why = "Every sample is read under one lock, so that four workers read no faster than one; two runs show it."
# ///

# %%
LENGTH = 60  # batches
import multiprocessing
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
lock = multiprocessing.Lock()


class Records(Dataset):
    def __len__(self):
        return 16 * LENGTH

    def __getitem__(self, i):
        with lock:
            time.sleep(0.0008)
        return torch.randn(128), torch.randint(0, 10, ())


class Own(Records):
    def __getitem__(self, i):
        time.sleep(0.0008)
        return torch.randn(128), torch.randint(0, 10, ())


# %% diagnosed
model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(Records(), batch_size=16, num_workers=4)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
