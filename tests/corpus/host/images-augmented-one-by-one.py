# /// truth
# class = "host"
# causes = ["augmentation-in-loop"]
# never = ["slow-python"]
# why = "The loop augments the images of each batch one by one."
# ///

# %%
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
images = TensorDataset(torch.rand(3200, 3, 32, 32), torch.randint(0, 10, (3200,)))
loader = DataLoader(images, batch_size=None, sampler=BatchSampler(RandomSampler(images), 32, True))
net = nn.Sequential(
    nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 16, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 49, 10)
)
opt = torch.optim.SGD(net.parameters(), 0.02)


def augment(image):
    if random.random() < 0.5:
        image = image.flip(-1)
    top, left = random.randrange(5), random.randrange(5)
    padded = nn.functional.pad(image, (2, 2, 2, 2))
    return padded[:, top : top + 32, left : left + 32] * (0.8 + 0.4 * random.random())


# %% diagnosed
for epoch in range(6):
    for x, y in loader:
        x = torch.stack([augment(image) for image in x])
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
