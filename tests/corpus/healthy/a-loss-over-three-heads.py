# /// truth
# class = "compute"
# never = ["loss-in-a-loop", "slow-python"]
# why = "A Python loop over three heads, each of which computes a lot."
# ///

# %%
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
X, Y = torch.randn(5120, 784), torch.randint(0, 10, (5120,))
train = TensorDataset(X, Y)
loader = DataLoader(train, batch_size=None, sampler=BatchSampler(RandomSampler(train), 64, True))
model = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
criterion = nn.CrossEntropyLoss()

heads = nn.ModuleList(nn.Linear(10, 400) for _ in range(3))

# %% diagnosed
for x, y in loader:
    x, y = x.repeat(4, 1), y.repeat(4)
    optimizer.zero_grad()
    z = model(x)
    loss = 0.0
    for head in heads:
        scores = torch.nn.functional.linear(z, head.weight, head.bias)
        loss = loss + torch.cdist(scores, scores).mean() + scores.logsumexp(1).mean()
    loss = loss + criterion(z, y)
    loss.backward()
    optimizer.step()
