# /// truth
# class = "host"
# causes = ["slow-python", "checkpoint-stall"]
# holdout = true
# why = "The weights are written as text after every step. Written before any rule was tried on it."
# ///

# %%
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(3)
N = 160
images, labels = torch.randn(N * 32, 256), torch.randint(0, 5, (N * 32,))
dataset = TensorDataset(images, labels)
train_dl = DataLoader(dataset, batch_size=None, sampler=BatchSampler(RandomSampler(dataset), 32, True))

net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 5))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
ce = nn.CrossEntropyLoss()

# %% diagnosed
import os
import tempfile

import numpy as np

out = os.path.join(tempfile.gettempdir(), "corpus-weights.txt")
for x, y in train_dl:
    opt.zero_grad()
    loss = ce(net(x), y)
    loss.backward()
    opt.step()
    with open(out, "w") as f:
        for name, p in net.state_dict().items():
            if p.ndim == 1:
                np.savetxt(f, p.numpy()[None], fmt="%.4e", header=name)
