# /// truth
# class = "compute"
# never = ["loader-without-workers", "too-few-workers", "slow-getitem", "slow-collate", "uneven-batches"]
# why = "Gradients of four batches are accumulated and clipped."
# ///

# %%
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
X, Y = torch.randn(10240, 784), torch.randint(0, 10, (10240,))
train = TensorDataset(X, Y)
loader = DataLoader(train, batch_size=None, sampler=BatchSampler(RandomSampler(train), 64, True))
model = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
criterion = nn.CrossEntropyLoss()

# %% diagnosed
optimizer.zero_grad()
for i, (x, y) in enumerate(loader):
    loss = criterion(model(x), y) / 4
    loss.backward()
    if (i + 1) % 4 == 0:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
