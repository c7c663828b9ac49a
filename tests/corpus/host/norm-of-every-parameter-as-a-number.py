# /// truth
# class = "host"
# causes = ["slow-python"]
# holdout = true
# why = "The norms of all parameters are taken as numbers in every step. Written before any rule was tried on it."
# ///

# %%
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(3)
N = 200
images, labels = torch.randn(N * 32, 256), torch.randint(0, 5, (N * 32,))
dataset = TensorDataset(images, labels)
train_dl = DataLoader(dataset, batch_size=None, sampler=BatchSampler(RandomSampler(dataset), 32, True))

net = nn.Sequential(*[m for _ in range(10) for m in (nn.Linear(256, 256), nn.ReLU())], nn.Linear(256, 5))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
ce = nn.CrossEntropyLoss()

# %% diagnosed
norms = []
for x, y in train_dl:
    opt.zero_grad()
    loss = ce(net(x), y)
    loss.backward()
    for name, p in net.named_parameters():
        g = p.grad.detach()
        norms.append(
            (
                name,
                g.norm(2).item(),
                g.abs().max().item(),
                g.std().item(),
                float((g == 0).float().mean()),
                p.detach().norm().item(),
            )
        )
    opt.step()
