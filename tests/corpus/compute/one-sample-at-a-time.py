# /// truth
# class = "compute"
# causes = ["per-sample-forward"]
# why = "The model is called once for each sample of the batch."
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
for x, y in loader:
    optimizer.zero_grad()
    outputs = torch.stack([model(one) for one in x])
    loss = criterion(outputs, y)
    loss.backward()
    optimizer.step()
