# /// truth
# class = "host"
# causes = ["python-in-forward"]
# holdout = true
# why = "A forward hook counts dead units in Python in every step."
# ///

# %%
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
X, Y = torch.randn(9600, 784), torch.randint(0, 10, (9600,))
train = TensorDataset(X, Y)
loader = DataLoader(train, batch_size=None, sampler=BatchSampler(RandomSampler(train), 64, True))
model = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
criterion = nn.CrossEntropyLoss()

# %% diagnosed
dead = []


def count(module, args, output):
    rows = output.detach().tolist()
    dead.append(sum(value <= 0.0 for row in rows for value in row) / output.numel())


handle = model[1].register_forward_hook(count)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
handle.remove()
