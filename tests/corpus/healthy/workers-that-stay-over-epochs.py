# /// truth
# class = "compute"
# never = [
#   "workers-restart-each-epoch",
#   "loader-without-workers",
#   "too-few-workers",
#   "slow-getitem",
#   "slow-collate",
#   "uneven-batches",
# ]
# why = "Short epochs, but the workers stay."
# ///

# %%
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
data = TensorDataset(torch.randn(16 * 30, 784), torch.randint(0, 10, (16 * 30,)))
model = nn.Sequential(nn.Linear(784, 1600), nn.ReLU(), nn.Linear(1600, 1600), nn.ReLU(), nn.Linear(1600, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

# %% diagnosed
loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=1, persistent_workers=True)
for epoch in range(4):
    for x, y in loader:
        x, y = x.repeat(4, 1), y.repeat(4)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
