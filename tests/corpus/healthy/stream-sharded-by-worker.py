# /// truth
# class = "compute"
# never = [
#   "iterable-duplicated",
#   "loader-without-workers",
#   "too-few-workers",
#   "slow-getitem",
#   "slow-collate",
#   "uneven-batches",
# ]
# why = "Each worker delivers its own part of the stream."
# ///

# %%
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

torch.set_num_threads(1)


class Shards(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        for i in range(info.id if info else 0, 32 * 90, info.num_workers if info else 1):
            if i % 8 < 2:
                time.sleep(0.0005)
            yield torch.randn(256)


model = nn.Sequential(nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 1024), nn.ReLU(), nn.Linear(1024, 256))
opt = torch.optim.SGD(model.parameters(), lr=0.01)

# %% diagnosed
for x in DataLoader(Shards(), batch_size=32, num_workers=2):
    loss = (model(x) - x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
