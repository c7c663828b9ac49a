# /// truth
# class = "input"
# causes = ["slow-epoch-start"]
# holdout = true
# why = """
# A weighted sampler draws for all of a large data set at each epoch's start, of which twenty batches are used. \
# Written before any rule was tried on it."""
# ///

# %%
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

torch.set_num_threads(1)
torch.manual_seed(0)
N = 600_000
X, y = torch.randn(N, 16), (torch.rand(N) < 0.03).long()
weights = (1.0 / torch.bincount(y).float())[y]
ds = TensorDataset(X, y)
net = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))
opt = torch.optim.SGD(net.parameters(), 0.05)
STEPS_PER_EPOCH = 20

# %% diagnosed
sampler = WeightedRandomSampler(weights, num_samples=len(weights), replacement=True)
loader = DataLoader(ds, batch_size=64, sampler=sampler)
for epoch in range(10):
    for step, (xb, yb) in enumerate(loader):
        if step == STEPS_PER_EPOCH:
            break
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(xb), yb)
        loss.backward()
        opt.step()
    print(epoch, loss.item())
