# /// truth
# class = "host"
# causes = ["slow-python"]
# holdout = true
# why = "A function of another cell works out metrics sample by sample, between forward and backward."
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


def matches(logits, y, at):
    found = 0
    for row, target in zip(logits, y):
        best = torch.topk(row, at).indices
        found += int(target in best)
    return found


def report(logits, y):
    return {f"top{at}": matches(logits.detach(), y, at) / len(y) for at in (1, 3, 5)}


# %% diagnosed
history = []
for x, y in loader:
    optimizer.zero_grad()
    logits = model(x)
    loss = criterion(logits, y)
    scores = report(logits, y)
    loss.backward()
    optimizer.step()
    history.append(scores)
