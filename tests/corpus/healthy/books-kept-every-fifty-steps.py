# /// truth
# class = "compute"
# why = "Loss and gradient norm are written down every fifty steps only. Written before any rule was tried on it."
# ///

# %%
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(3)
N = 220
images, labels = torch.randn(N * 32, 256), torch.randint(0, 5, (N * 32,))
dataset = TensorDataset(images, labels)
train_dl = DataLoader(dataset, batch_size=None, sampler=BatchSampler(RandomSampler(dataset), 32, True))

net = nn.Sequential(*[m for _ in range(10) for m in (nn.Linear(256, 256), nn.ReLU())], nn.Linear(256, 5))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
ce = nn.CrossEntropyLoss()

# %% diagnosed
import json

log, running = [], torch.zeros(())
for i, (x, y) in enumerate(train_dl):
    opt.zero_grad()
    loss = ce(net(x), y)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(net.parameters(), 5.0)
    opt.step()
    running += loss.detach()
    if i % 50 == 49:
        log.append(json.dumps({"step": i, "loss": float(running) / 50, "norm": float(norm)}))
        running.zero_()
