# /// truth
# class = "compute"
# causes = ["changing-shapes"]
# why = "Every batch has a length of its own, and convolutions are slow at each new one."
# ///

# %%
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Clips(Dataset):
    # two batches of each length, as a bucketing script left them
    def __init__(self):
        self.lengths = random.sample(range(100, 700), 60) * 2  # torch keeps the kernels of a run
        self.clips = torch.randn(4, 8, 704)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        return self.clips[:, :, : self.lengths[i]]


model = nn.Sequential(
    nn.Conv1d(8, 16, 5),
    nn.ReLU(),
    nn.Conv1d(16, 16, 5),
    nn.ReLU(),
    nn.Conv1d(16, 16, 5),
    nn.ReLU(),
    nn.AdaptiveAvgPool1d(1),
    nn.Flatten(),
    nn.Linear(16, 4),
)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

# %% diagnosed
loader = DataLoader(Clips(), batch_size=None, shuffle=True)
for x in loader:
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
