# /// truth
# class = "host"
# causes = ["garbage-collected-each-step"]
# why = "Python's heap is scanned for garbage after every step."
# ///

# %%
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
X, Y = torch.randn(1920, 784), torch.randint(0, 10, (1920,))
train = TensorDataset(X, Y)
loader = DataLoader(train, batch_size=None, sampler=BatchSampler(RandomSampler(train), 64, True))
model = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
criterion = nn.CrossEntropyLoss()

# %% diagnosed
import gc

for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    del loss
    gc.collect()  # someone on a forum said this helps
