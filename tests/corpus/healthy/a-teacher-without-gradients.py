# /// truth
# class = "compute"
# never = ["redundant-forward"]
# why = "A teacher and a second forward of other inputs, both needed by the loss."
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

import copy

teacher = copy.deepcopy(model)

# %% diagnosed
for x, y in loader:
    with torch.no_grad():
        soft = teacher(x).softmax(1)
        clean = model(x).softmax(1)
    optimizer.zero_grad()
    logits = model(x + 0.1 * torch.randn_like(x))
    loss = criterion(logits, y) - (soft * logits.log_softmax(1)).sum(1).mean()
    loss = loss + (clean - logits.softmax(1)).square().sum(1).mean()
    loss.backward()
    optimizer.step()
