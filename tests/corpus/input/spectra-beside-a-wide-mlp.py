# /// truth
# class = "input"
# causes = ["loader-without-workers", "slow-getitem"]
# most_workers = 2
# settings = { num_workers = 2 }
# holdout = true
# why = "Spectra are computed between the steps of a model that uses all cores: workers take cores from it."
# ///

# %%
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
LENGTH = 80  # batches
criterion = nn.CrossEntropyLoss()

import numpy as np

waves = np.random.default_rng(0).normal(size=(32, 16000))


class Speech(Dataset):
    def __len__(self):
        return 16 * LENGTH

    def __getitem__(self, i):
        frames = np.lib.stride_tricks.sliding_window_view(waves[i % 32], 400)[::160] * np.hanning(400)
        power = np.log1p(np.abs(np.fft.rfft(frames, axis=1)) ** 2)
        return torch.from_numpy(power.mean(0).astype(np.float32)), i % 10


data = Speech()
model = nn.Sequential(nn.Linear(201, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))

optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

# %% diagnosed
loader = DataLoader(data, batch_size=16, shuffle=True)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
