# /// truth
# class = "input"
# causes = ["uneven-batches"]
# settings = { prefetch_factor = 16 }
# holdout = true
# why = "One sample in sixty takes 240 times as long as the others: batches further ahead hide it."
# ///

# %%
LENGTH = 130  # batches
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Documents(Dataset):
    def __len__(self):
        return 4 * LENGTH

    def __getitem__(self, i):
        time.sleep(0.240 if i % 60 == 59 else 0.001)  # one in sixty is a book
        return torch.randn(512)


model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512))
opt = torch.optim.SGD(model.parameters(), lr=0.01)

# %% diagnosed
loader = DataLoader(Documents(), batch_size=4, num_workers=2)
for x in loader:
    crops = x.repeat(16, 1) + 0.1 * torch.randn(64, 512)
    loss = (model(crops) - crops).pow(2).mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
