# /// truth
# class = "input"
# causes = ["loader-without-workers", "slow-storage"]
# settings = { num_workers = 6 }
# holdout = true
# why = "Every sample is a request to an object store that takes 2 ms, and nobody fetches ahead."
# ///

# %%
EPOCHS = 3
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class RemoteImages(Dataset):
    # every sample is a request to an object store
    def __len__(self):
        return 16 * 20

    def __getitem__(self, i):
        time.sleep(0.002)
        return torch.randn(3, 32, 32), i % 10


model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss()

# %% diagnosed
loader = DataLoader(RemoteImages(), batch_size=16, shuffle=True)
for epoch in range(EPOCHS):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
