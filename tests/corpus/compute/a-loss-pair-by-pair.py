# /// truth
# class = "compute"
# causes = ["loss-in-a-loop"]
# why = "The loss is worked out pair by pair in a Python loop."
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


def pulled(z, y):
    total = 0.0
    for i in range(len(z)):
        j = (i + 1) % len(z)
        if y[i] == y[j]:
            total = total + (z[i] - z[j]).square().sum()
        else:
            total = total + torch.relu(1.0 - (z[i] - z[j]).norm()) ** 2
    return total / len(z)


# %% diagnosed
for x, y in loader:
    optimizer.zero_grad()
    z = model(x)
    loss = criterion(z, y) + pulled(z, y)
    loss.backward()
    optimizer.step()
