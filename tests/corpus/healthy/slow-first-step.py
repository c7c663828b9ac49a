# /// truth
# class = "compute"
# never = ["loader-without-workers", "too-few-workers", "slow-getitem", "slow-collate", "uneven-batches"]
# why = "The first step takes 0.8 s longer than the others."
# ///

# %%
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
X, Y = torch.randn(7680, 784), torch.randint(0, 10, (7680,))
train = TensorDataset(X, Y)
loader = DataLoader(train, batch_size=None, sampler=BatchSampler(RandomSampler(train), 64, True))
model = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
criterion = nn.CrossEntropyLoss()


class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.ready = model, False

    def forward(self, x):
        if not self.ready:
            import time

            time.sleep(0.8)  # compiles, tunes, downloads
            self.ready = True
        return self.net(x)


lazy = Lazy()

# %% diagnosed
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(lazy(x), y)
    loss.backward()
    optimizer.step()
