# /// truth
# class = "compute"
# causes = ["eval-with-gradients", "heavy-evaluation"]
# timed = "tail"
# holdout = true
# why = "The validation records graphs for gradients that nobody asks for."
# ///

# %%
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
X, Y = torch.randn(896, 784), torch.randint(0, 10, (896,))
train = TensorDataset(X, Y)
loader = DataLoader(train, batch_size=None, sampler=BatchSampler(RandomSampler(train), 64, True))
model = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
criterion = nn.CrossEntropyLoss()

val = [(torch.randn(64, 784), torch.randint(0, 10, (64,))) for _ in range(40)]
layers = [m for _ in range(40) for m in (nn.Linear(32, 32), nn.Tanh())]
deep = nn.Sequential(nn.Linear(784, 32), *layers, nn.Linear(32, 10))
optimizer = torch.optim.SGD(deep.parameters(), lr=0.05)

# %% diagnosed
for epoch in range(4):
    deep.train()
    for x, y in loader:
        optimizer.zero_grad()
        criterion(deep(x), y).backward()
        optimizer.step()
    deep.eval()
    losses = []
    for x, y in val:
        losses.append(criterion(deep(x), y).item())
    val_loss = sum(losses) / len(losses)
