# /// truth
# class = "host"
# causes = ["python-in-forward"]
# why = "The forward makes the same table in nested Python loops every time."
# ///

# %%
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
X, Y = torch.randn(12800, 784), torch.randint(0, 10, (12800,))
train = TensorDataset(X, Y)
loader = DataLoader(train, batch_size=None, sampler=BatchSampler(RandomSampler(train), 64, True))
model = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
criterion = nn.CrossEntropyLoss()

import math


class Windowed(nn.Module):
    side, widths = 28, tuple(range(4, 32, 2))

    def __init__(self):
        super().__init__()
        self.net = model

    def window(self):
        heights = []
        for y in range(self.side):
            for x in range(self.side):
                far = (x - self.side / 2) ** 2 + (y - self.side / 2) ** 2
                heights.append(sum(math.exp(-far / width**2) for width in self.widths))
        return torch.tensor(heights) / len(self.widths)

    def forward(self, x):
        return self.net(x * self.window())


class Kept(Windowed):
    def __init__(self):
        super().__init__()
        self.register_buffer("heights", self.window(), persistent=False)

    def forward(self, x):
        return self.net(x * self.heights)


# %% diagnosed
net = Windowed()
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(net(x), y)
    loss.backward()
    optimizer.step()
