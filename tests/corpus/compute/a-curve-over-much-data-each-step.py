# /// truth
# class = "compute"
# causes = ["redundant-forward"]
# holdout = true
# why = "After every step a function runs the model over 512 samples for a curve."
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


def watch(model, curve):
    with torch.no_grad():
        curve.append(criterion(model(X[:512]), Y[:512]).item())


# %% diagnosed
curve = []
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    watch(model, curve)
