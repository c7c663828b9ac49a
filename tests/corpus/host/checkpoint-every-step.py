# /// truth
# class = "host"
# causes = ["checkpoint-stall"]
# why = "A checkpoint is written after every step."
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

# %% diagnosed
import os
import tempfile

path = os.path.join(tempfile.gettempdir(), "corpus-last.pt")
for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
