# /// truth
# class = "compute"
# never = ["slow-python"]
# why = "A loss over all pairs of a batch, in whole tensors."
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


def contrastive(z, y, heat=0.1):
    z = z / z.norm(dim=1, keepdim=True)
    alike = z @ z.T / heat
    same = (y[:, None] == y[None, :]).float()
    far = torch.cdist(z, z).exp()
    return -(same * alike.log_softmax(1)).sum() / same.sum() + (far * (1 - same)).mean()


# %% diagnosed
for x, y in loader:
    x, y = x.repeat(6, 1), y.repeat(6)
    optimizer.zero_grad()
    loss = contrastive(model(x), y)
    loss.backward()
    optimizer.step()
