# /// truth
# class = "compute"
# never = ["loader-without-workers", "too-few-workers", "slow-getitem", "slow-collate", "uneven-batches"]
# why = "Samples arrive slowly, and six workers hide it."
# ///

# %%
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Remote(Dataset):
    def __len__(self):
        return 8 * 90

    def __getitem__(self, i):
        time.sleep(0.004)
        return torch.randn(256), i % 10


model = nn.Sequential(nn.Linear(256, 1600), nn.ReLU(), nn.Linear(1600, 1600), nn.ReLU(), nn.Linear(1600, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

# %% diagnosed
loader = DataLoader(Remote(), batch_size=8, shuffle=True, num_workers=6)
for x, y in loader:
    x, y = x.repeat(8, 1), y.repeat(8)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
