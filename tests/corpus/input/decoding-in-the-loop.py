# /// truth
# class = "input"
# causes = ["loader-without-workers", "slow-getitem"]
# most_workers = 2
# settings = { num_workers = 1 }
# why = "Each image is decompressed on the training's own core, although a second core is free."
# ///

# %%
LENGTH = 70  # batches
import zlib

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)  # so that the loader gets a core of its own
rng = np.random.default_rng(0)
files = [zlib.compress(rng.integers(0, 8, (224, 224, 3), dtype=np.uint8).tobytes()) for _ in range(64)]


class Compressed(Dataset):
    def __len__(self):
        return 16 * LENGTH

    def __getitem__(self, i):
        image = np.frombuffer(zlib.decompress(files[i % 64]), dtype=np.uint8).reshape(224, 224, 3)
        image = image[::7, ::7].astype(np.float32) / 255
        return torch.from_numpy(image.transpose(2, 0, 1).copy()), i % 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 12, 3)
        self.conv2 = nn.Conv2d(12, 12, 3)
        self.fc = nn.Linear(12 * 7 * 7, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.adaptive_avg_pool2d(x, 7)
        return self.fc(x.flatten(1))


net = Net()
opt = torch.optim.Adam(net.parameters())

# %% diagnosed
train_loader = DataLoader(Compressed(), batch_size=16, shuffle=True)

running = 0.0
for batch_idx, (data, target) in enumerate(train_loader):
    opt.zero_grad()
    output = net(data)
    loss = F.cross_entropy(output, target)
    loss.backward()
    opt.step()
    running += loss.item()
    if batch_idx % 50 == 49:
        running = 0.0
