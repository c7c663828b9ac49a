# /// truth
# class = "input"
# causes = ["uneven-batches"]
# holdout = true
# why = "Every fifteenth batch waits for a shard to be downloaded."
# ///

# %%
COLD_S = 0.060
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Shards(Dataset):
    def __len__(self):
        return 8 * 150

    def __getitem__(self, i):
        if i % 120 == 119:  # a shard is downloaded with its last batch
            time.sleep(COLD_S)
        return torch.randn(256)


model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))
opt = torch.optim.SGD(model.parameters(), lr=0.01)

# %% diagnosed
for x in DataLoader(Shards(), batch_size=8):
    loss = (model(x) - x).pow(2).mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
