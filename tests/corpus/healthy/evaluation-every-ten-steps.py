# /// truth
# class = "compute"
# never = ["loader-without-workers", "too-few-workers", "slow-getitem", "slow-collate", "uneven-batches", "slow-python"]
# why = "A short evaluation every ten steps."
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

val_X, val_Y = torch.randn(256, 784), torch.randint(0, 10, (256,))


def accuracy(batch=64):
    right = 0
    model.eval()
    with torch.no_grad():
        for i in range(0, len(val_X), batch):
            right += (model(val_X[i : i + batch]).argmax(1) == val_Y[i : i + batch]).sum().item()
    model.train()
    return right / len(val_X)


# %% diagnosed
for step, (x, y) in enumerate(loader, 1):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item(), accuracy())
