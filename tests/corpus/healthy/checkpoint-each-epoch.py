# /// truth
# class = "compute"
# never = [
#   "checkpoint-stall",
#   "loader-without-workers",
#   "too-few-workers",
#   "slow-getitem",
#   "slow-collate",
#   "uneven-batches",
# ]
# why = "A checkpoint an epoch."
# ///

# %%
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
X, Y = torch.randn(3840, 784), torch.randint(0, 10, (3840,))
train = TensorDataset(X, Y)
loader = DataLoader(train, batch_size=None, sampler=BatchSampler(RandomSampler(train), 64, True))
model = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
criterion = nn.CrossEntropyLoss()

# %% diagnosed
import os
import tempfile

for epoch in range(3):
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    torch.save(model.state_dict(), os.path.join(tempfile.gettempdir(), "corpus-epoch.pt"))
    print(f"epoch {epoch}: {total / len(loader):.3f}")
